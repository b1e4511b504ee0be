import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { DriverUnavailable, isLoopback } from '@vmux/runner-kit';
import { createWebSocketStream, WebSocket } from 'ws';
import type { ModalApi } from './modal-api';
import { messageOf } from './modal-faults';
import { BRIDGE_COMMAND } from './supervisor-boot';

/** A connection that says nothing for so long is dead, whatever lies between. */
const PING_EVERY_MS = 15_000;
const HANDSHAKE_WITHIN_MS = 10_000;
const PORT_LINE = /^(\d{1,5})\n/;

/**
 * A pipe to the supervisor that Modal carries as a WebSocket, to a port inside that is opened for it alone:
 * a token lets it through Modal's door, a secret through the supervisor's. Both are made for each pipe and
 * kept nowhere. Tried twice: what refuses the first token may take the second.
 */
export async function openConnectPipe(
  api: ModalApi,
  sandboxId: string,
  signal?: AbortSignal,
): Promise<Duplex> {
  try {
    return await attempt(api, sandboxId, signal);
  } catch {
    signal?.throwIfAborted();
    return attempt(api, sandboxId, signal);
  }
}

async function attempt(api: ModalApi, sandboxId: string, signal?: AbortSignal): Promise<Duplex> {
  const secret = randomBytes(32).toString('hex');
  const port = await bridge(api, sandboxId, secret, signal);
  const { url, token } = await api.connectToken(sandboxId, port);
  return opened(webSocketUrl(url), { token, secret }, signal);
}

/** Starts a bridge inside and returns its port. It ends by itself when nobody comes. */
async function bridge(
  api: ModalApi,
  sandboxId: string,
  secret: string,
  signal?: AbortSignal,
): Promise<number> {
  const process = await api.exec(sandboxId, BRIDGE_COMMAND);
  const writer = process.stdin.getWriter();
  const reader = process.stdout.getReader();
  const giveUp = () => void reader.cancel().catch(() => undefined);
  signal?.addEventListener('abort', giveUp, { once: true });
  try {
    await writer.write(Buffer.from(`${secret}\n`));
    await writer.close();
    for (let said = ''; ; ) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted();
      if (done) throw new DriverUnavailable('the bridge inside the sandbox did not start');
      said = `${said}${Buffer.from(value).toString('utf8')}`.slice(0, 16);
      const port = Number(PORT_LINE.exec(said)?.[1]);
      if (port) return port;
    }
  } finally {
    signal?.removeEventListener('abort', giveUp);
    giveUp();
    process.stderr.cancel().catch(() => undefined);
  }
}

/** In clear to this machine alone: the emulator. */
function webSocketUrl(text: string): URL {
  const url = new URL(text);
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && isLoopback(url.hostname)))
    throw new DriverUnavailable('Modal names no address with TLS for the connection');
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}

async function opened(
  url: URL,
  { token, secret }: { readonly token: string; readonly secret: string },
  signal?: AbortSignal,
): Promise<Duplex> {
  const socket = new WebSocket(url, {
    headers: { Authorization: `Bearer ${token}`, 'X-Vmux-Bridge': secret },
    handshakeTimeout: HANDSHAKE_WITHIN_MS,
    followRedirects: false,
    perMessageDeflate: false,
  });
  // Before it is open: what comes with the answer would be missed.
  const pipe = createWebSocketStream(socket);
  const abort = () => socket.terminate();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve);
      pipe.once('error', (cause) =>
        reject(new DriverUnavailable(`Modal does not connect (${messageOf(cause)})`, { cause })),
      );
    });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
  keepAlive(socket);
  return pipe;
}

function keepAlive(socket: WebSocket): void {
  let heard = true;
  const hear = () => {
    heard = true;
  };
  socket.on('pong', hear).on('message', hear);
  const timer = setInterval(() => {
    if (!heard) return socket.terminate();
    heard = false;
    socket.ping();
  }, PING_EVERY_MS).unref();
  socket.once('close', () => clearInterval(timer));
}
