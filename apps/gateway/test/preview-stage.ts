import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket, type Server as TcpServer } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { fact, type SessionEvent } from '@vmux/events';
import { releaseLater } from '@vmux/testing';
import { startTunnelServer, TunnelRefused, Tunnels } from '@vmux/tunnel';
import pino from 'pino';
import { PreviewClient } from '../../../test/support/preview-client';
import { apply, type SessionView, unborn } from '../src/application/session-view';
import { Shares } from '../src/application/shares';
import { Metrics } from '../src/http/metrics';
import { OpenPreviews } from '../src/previews/open-previews';
import { PreviewAccess } from '../src/previews/preview-access';
import { PreviewNames } from '../src/previews/preview-names';
import { PreviewProxy } from '../src/previews/preview-proxy';
import { PreviewServer } from '../src/previews/preview-server';
import { PreviewTokens } from '../src/previews/preview-tokens';
import { Strangers } from '../src/previews/strangers';

export const SESSION = 'stage-0a1b';

/** Previews in front of a real tunnel, with apps on this machine in the place of a sandbox. */
export interface Stage {
  readonly url: string;
  readonly view: SessionView;
  readonly woken: string[];
  happened(event: SessionEvent): void;
  client(port: number): Promise<PreviewClient>;
  tokens: PreviewTokens;
}

export async function startStage(
  options: {
    readonly previewUrl?: string;
    readonly headWithinMs?: number;
    readonly awakeAfter?: Promise<void>;
    /** Before anything is dialled. */
    readonly dialAfter?: () => Promise<void>;
    readonly strangers?: Strangers;
    readonly onRead?: (sessionId: string) => void;
  } = {},
): Promise<Stage> {
  const tunnel = await startTunnelServer({
    ...{ host: '127.0.0.1', port: 0 },
    onFault: (fault) => {
      throw fault;
    },
    serve: async (request, stream) => {
      const { port } = request as { port: number };
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
      await new Promise<void>((resolve, reject) => {
        socket.once('connect', resolve);
        socket.once('error', () =>
          reject(new TunnelRefused('port_refused', 'refused', { errno: 'ECONNREFUSED' })),
        );
      });
      const outward = async () => {
        for await (const piece of socket.iterator({ destroyOnReturn: false }))
          await stream.send(piece);
        stream.end();
      };
      try {
        await Promise.all([outward(), pipeline(stream.receive(), socket)]);
      } catch {
        throw new TunnelRefused('port_refused', 'reset', { errno: 'ECONNRESET' });
      } finally {
        socket.destroy();
      }
      return null;
    },
  });
  const tunnels = new Tunnels();
  const view = unborn(SESSION);
  const woken: string[] = [];
  const happened = (event: SessionEvent) => {
    view.revision += 1;
    const metadata = { principal: 'system', correlationId: 'r-1', version: 1 };
    apply(view, { event, revision: view.revision, metadata }, BigInt(view.revision));
  };
  const tokens = new PreviewTokens({
    digest: async (session, bytes) =>
      Buffer.from(
        await crypto.subtle.digest('SHA-256', Buffer.from(`${session} ${bytes}`)),
      ).toString('hex'),
  });
  const reader = {
    read: async (id: string) => {
      options.onRead?.(id);
      return id === SESSION ? view : null;
    },
    waitFor: async () => undefined,
  };
  const names = new PreviewNames(options.previewUrl ?? 'http://localhost');
  const access = new PreviewAccess(tokens, new Shares(reader), names.scheme);
  const open = new OpenPreviews(reader, access, (fault) => {
    throw fault;
  });
  const place = { sandbox: { sessionId: SESSION, epoch: 1, instance: 'i-1' }, runnerId: 'local' };
  const previews = new PreviewServer({
    ...{ names, access, open, reader, strangers: options.strangers ?? new Strangers() },
    proxy: new PreviewProxy(options.headWithinMs),
    events: { stream: async () => undefined } as never,
    streams: {
      open: async (_place, request, signal) => {
        await options.dialAfter?.();
        const stream = await tunnels.open('local', tunnel, request);
        if (signal.aborted) stream.cancel();
        signal.addEventListener('abort', () => stream.cancel(), { once: true });
        return stream;
      },
      awake: async (caller) => {
        woken.push(caller.owner);
        await options.awakeAfter;
        return place;
      },
    },
    metrics: new Metrics(),
    logger: pino({ level: 'silent' }),
  });
  // As long as the gateway's: a client that was busy for a while finds its connection still open.
  const limits = { maxHeaderSize: 16 * 1024, keepAliveTimeout: 72_000 };
  const server = createHttpServer(limits, (request, response) => {
    const name = previews.nameOf(request);
    if (name) void previews.serve(request, response, name);
    else response.writeHead(421).end('the API');
  });
  server.on('upgrade', (request, socket, head) => {
    socket.on('error', () => socket.destroy());
    const name = previews.nameOf(request);
    if (name) void previews.serveUpgrade(request, socket, head, name);
    else socket.destroy();
  });
  const port = await listening(server);
  releaseLater(async () => {
    open.closeAll();
    server.closeAllConnections();
    server.close();
    tunnels.close();
    await tunnel.close();
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    ...{ url, view, woken, happened, tokens },
    client: async (app) => {
      const expiresAt = Date.now() + 60_000;
      const { generation = 0 } = view.access.get(app) ?? {};
      const token = await tokens.mint({ sessionId: SESSION, port: app, generation, expiresAt });
      return new PreviewClient(url, SESSION, app, token);
    },
  };
}

export const begin = (stage: Stage): void => {
  stage.happened(
    fact('SessionCreated', {
      ...{ at: 1, sessionId: SESSION, owner: 'ann', name: 'stage', attempt: 0, provider: 'ns' },
      spec: {} as never,
      lineage: null,
    }),
  );
  stage.happened(
    fact('SandboxRequested', {
      ...{ at: 2, epoch: 1, runnerId: 'local', provider: 'ns', capabilities: [] },
      ...{ purpose: 'create', restore: null, allowBaseChange: false },
    }),
  );
  stage.happened(
    fact('SandboxStarted', {
      ...{ at: 3, epoch: 1, instance: 'i-1', runnerId: 'local', base: null, restored: null },
    }),
  );
};

/** An app that answers a connection however it likes. */
export async function rawApp(serve: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => sockets.delete(socket));
    serve(socket);
  });
  const port = await listening(server);
  releaseLater(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return port;
}

export async function httpApp(server: Server): Promise<number> {
  const port = await listening(server);
  releaseLater(() => {
    server.closeAllConnections();
    server.close();
  });
  return port;
}

async function listening(server: Server | TcpServer): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/** Answers as it is told to, and keeps what it was asked. */
export interface RecordingApp {
  readonly port: number;
  seen: IncomingMessage[];
  answer: (request: IncomingMessage, response: ServerResponse) => void;
  reset(): void;
}

export async function recordingApp(): Promise<RecordingApp> {
  const plain: RecordingApp['answer'] = (_request, response) => response.end('the app');
  const port = await httpApp(
    createHttpServer((request, response) => {
      app.seen.push(request);
      app.answer(request, response);
    }),
  );
  const app: RecordingApp = {
    ...{ port, seen: [], answer: plain },
    reset: () => Object.assign(app, { seen: [], answer: plain }),
  };
  return app;
}
