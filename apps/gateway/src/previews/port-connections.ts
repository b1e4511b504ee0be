import { pipeline } from 'node:stream/promises';
import { type RawData, type WebSocket, WebSocketServer } from 'ws';
import type { SessionCommands } from '../application/session-commands';
import { explained, type SandboxStreams } from '../data-plane/sandbox-streams';
import { ApiError } from '../http/api-error';
import type { Callers } from '../http/callers';
import type { Followers } from '../http/followers';
import { apiErrorOf } from '../http/translate';
import type { Upgrade } from '../http/upgrades';
import { portOf } from './ports.controller';
import { opens } from './preview-access';
import { isReserved } from './reserved-ports';
import { TunnelSocket } from './tunnel-socket';

export const CONNECT_PATH = /^\/v1\/sessions\/([^/]{1,128})\/ports\/([^/]{1,8})\/connect$/;

const MAX_MESSAGE_BYTES = 1024 * 1024;
const HIGH_WATER_BYTES = 256 * 1024;
const END = 'end';

/** Raw TCP connections to ports of a sandbox, each as one WebSocket: what `vmux forward` is made of. */
export class PortConnections {
  private readonly sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });

  constructor(
    private readonly callers: Callers,
    private readonly sessions: SessionCommands,
    private readonly streams: Pick<SandboxStreams, 'open' | 'awake' | 'sandbox'>,
    private readonly followers: Followers,
  ) {}

  async take({ request, socket, head, path }: Upgrade): Promise<void> {
    const [sessionId = '', text = ''] = path;
    const caller = await this.callers.known({
      authorization: request.headers.authorization,
      ticket: null,
      ip: request.socket.remoteAddress ?? '',
      sharedSession: sessionId,
    });
    this.callers.admit(caller, ['sessions:write'], ['ports']);
    const port = portOf(text);
    if (caller.share && !opens(caller.share, port))
      throw new ApiError('forbidden', 'the share does not open this port');
    const { provider } = await this.sessions.session(caller, sessionId);
    if (isReserved(provider, port))
      throw new ApiError('invalid_request', `${provider} keeps port ${port} for itself`);
    // Its end was told already: nobody would ever leave.
    if (socket.destroyed) return;
    const held = this.followers.enter(caller);
    const gone = new AbortController();
    const signal = AbortSignal.any([held.signal, gone.signal]);
    socket.once('close', () => {
      gone.abort();
      held.leave();
    });
    try {
      const place = await this.streams.awake(caller, sessionId, 'preview', signal);
      const tunnel = new TunnelSocket(await this.streams.open(place, { op: 'dial', port }, signal));
      this.sockets.handleUpgrade(request, socket, head, (webSocket) => {
        const find = () => this.streams.sandbox(caller, sessionId, signal);
        void carried(webSocket, tunnel, signal, (fault) => explained(fault, place, find));
      });
    } catch (fault) {
      held.leave();
      throw fault;
    }
  }
}

async function carried(
  socket: WebSocket,
  tunnel: TunnelSocket,
  signal: AbortSignal,
  explain: (fault: unknown) => Promise<unknown>,
): Promise<void> {
  const cut = () => {
    socket.terminate();
    tunnel.destroy();
  };
  signal.addEventListener('abort', cut, { once: true });
  socket.on('close', () => tunnel.destroy());
  socket.on('error', () => tunnel.destroy());
  try {
    await Promise.all([pipeline(messagesOf(socket), tunnel), sent(tunnel, socket)]);
    socket.close(1000);
  } catch (fault) {
    const { code } = apiErrorOf(await explain(fault));
    // A cut is no end: whoever forwards resets the connection that it stands for.
    socket.close(code === 'port_refused' ? 4502 : 1011, code);
  } finally {
    signal.removeEventListener('abort', cut);
  }
}

async function sent(tunnel: TunnelSocket, socket: WebSocket): Promise<void> {
  for await (const piece of tunnel.iterator({ destroyOnReturn: false })) {
    await new Promise<void>((resolve, reject) => {
      socket.send(piece, { binary: true }, (fault) => (fault ? reject(fault) : undefined));
      if (socket.bufferedAmount < HIGH_WATER_BYTES) resolve();
      else drained(socket).then(resolve, reject);
    });
  }
  socket.send(END);
}

const drained = (socket: WebSocket): Promise<void> =>
  new Promise((resolve, reject) =>
    socket.ping('', false, (fault) => (fault ? reject(fault) : resolve())),
  );

async function* messagesOf(socket: WebSocket): AsyncGenerator<Buffer> {
  const arrived: (Buffer | null)[] = [];
  let wake: () => void = () => undefined;
  const take = (data: RawData, isBinary: boolean) => {
    arrived.push(isBinary && Buffer.isBuffer(data) ? data : null);
    socket.pause();
    wake();
  };
  const over = () => {
    arrived.push(null);
    wake();
  };
  socket.on('message', take);
  socket.on('close', over);
  for (;;) {
    const next = arrived.shift();
    if (next === null) {
      // Its close is still to be read.
      socket.resume();
      return;
    }
    if (next) yield next;
    else {
      socket.resume();
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
}
