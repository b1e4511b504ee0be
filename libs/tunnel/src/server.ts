import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { FrameConnection } from './connection';
import { MalformedFrame, StreamCancelled, TunnelRefused } from './errors';
import {
  encodeJson,
  encodeRefused,
  type Frame,
  jsonOf,
  MAX_MESSAGE_BYTES,
  MAX_STREAMS,
  TYPE,
} from './frames';
import { TunnelStream } from './stream';

/** Serves one stream; what it returns is the result, `TunnelRefused` is told, any other fault is not. */
export type Serve = (request: unknown, stream: TunnelStream) => Promise<unknown>;

export interface TunnelServerOptions {
  readonly host: string;
  /** 0 for any. */
  readonly port: number;
  /** Where gateways dial it, when that is not where it listens, such as behind a proxy with TLS. */
  readonly announcedUrl?: string | null;
  readonly serve: Serve;
  readonly onFault: (fault: unknown) => void;
}

export interface TunnelServer {
  readonly url: string;
  /** Made anew for each server: whoever knows it may open streams. */
  readonly token: string;
  close(): Promise<void>;
}

export const TUNNEL_PATH = '/tunnel/1';
const MAX_CONNECTIONS = 256;
const HEADERS_TIMEOUT_MS = 10_000;

export async function startTunnelServer(options: TunnelServerOptions): Promise<TunnelServer> {
  const token = randomBytes(32).toString('base64url');
  const server = createServer((_request, response) => response.writeHead(426).end());
  server.maxConnections = MAX_CONNECTIONS;
  server.headersTimeout = HEADERS_TIMEOUT_MS;
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });
  const open = new Set<ServedConnection>();
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    const status = refusal(request, token);
    if (status !== null) {
      socket.end(
        `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`,
      );
      return;
    }
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const connection = new ServedConnection(webSocket, options);
      open.add(connection);
      connection.whenEnded(() => open.delete(connection));
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const host = options.host.includes(':') ? `[${options.host}]` : options.host;
  return {
    url: options.announcedUrl ?? `ws://${host}:${port}${TUNNEL_PATH}`,
    token,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
        for (const connection of open) connection.close();
      }),
  };
}

function refusal(request: IncomingMessage, token: string): number | null {
  const given = /^Bearer (\S{1,512})$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
  if (!isSame(given, token)) return 401;
  return request.url === TUNNEL_PATH ? null : 404;
}

/** Takes the same time however much of it is right. */
function isSame(given: string, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

class ServedConnection {
  private readonly frames: FrameConnection;
  private readonly streams = new Map<number, TunnelStream>();
  private lastId = 0;

  constructor(
    socket: WebSocket,
    private readonly options: TunnelServerOptions,
  ) {
    this.frames = new FrameConnection(socket, (frame) => this.take(frame));
    this.frames.whenEnded((fault) => {
      if (fault instanceof MalformedFrame) options.onFault(fault);
      for (const stream of this.streams.values()) stream.close(fault);
      this.streams.clear();
    });
  }

  whenEnded(ended: () => void): void {
    this.frames.whenEnded(ended);
  }

  close(): void {
    this.frames.break(new StreamCancelled());
  }

  private take(frame: Frame): void {
    if (frame.type === TYPE.open) {
      this.open(frame);
      return;
    }
    const stream = this.streams.get(frame.stream);
    if (!stream) {
      // Sent before the other end knew that the stream is over.
      if (frame.stream >= 1 && frame.stream <= this.lastId) return;
      throw new MalformedFrame(`stream ${frame.stream} was never opened`);
    }
    if (frame.type === TYPE.cancel) {
      this.streams.delete(frame.stream);
      stream.close(new StreamCancelled());
    } else {
      stream.take(frame);
    }
  }

  private open(frame: Frame): void {
    if (frame.stream !== this.lastId + 1) throw new MalformedFrame(`stream ${frame.stream}`);
    this.lastId = frame.stream;
    const request = jsonOf(frame);
    const stream = new TunnelStream(frame.stream, this.frames);
    if (this.streams.size >= MAX_STREAMS) {
      const busy = new TunnelRefused('limit', `${MAX_STREAMS} streams are open`);
      this.frames.write(encodeRefused(frame.stream, busy));
      return;
    }
    this.streams.set(frame.stream, stream);
    this.options.serve(request, stream).then(
      (result) => this.settle(stream, () => encodeJson(TYPE.done, stream.id, result)),
      (fault) => this.settle(stream, () => encodeRefused(stream.id, this.told(fault))),
    );
  }

  private told(fault: unknown): TunnelRefused {
    if (fault instanceof TunnelRefused) return fault;
    this.options.onFault(fault);
    return new TunnelRefused('internal', 'something went wrong in the runner');
  }

  private settle(stream: TunnelStream, last: () => Buffer): void {
    if (!stream.isOpen) return;
    this.streams.delete(stream.id);
    this.frames.write(last());
    stream.close();
  }
}
