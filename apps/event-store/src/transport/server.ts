import {
  constants,
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { accessDenied, CallError, Status } from '../protocol/status';
import { Call } from './call';

export interface Method {
  /** Clients ask for the server's features without credentials. */
  readonly anonymous?: true;
  start(call: Call): void;
}

export interface ServerOptions {
  readonly methods: ReadonlyMap<string, Method>;
  /** Undefined: no authentication. */
  readonly accepts?: (authorization: string | undefined) => boolean;
  readonly tls?: { readonly key: Buffer; readonly cert: Buffer };
  failed(error: unknown): void;
}

const SETTINGS = { initialWindowSize: 1024 * 1024, maxConcurrentStreams: 1000 };
const CONNECTION_WINDOW_BYTES = 8 * 1024 * 1024;
const SESSION_MEMORY_MIB = 64;
const HEADER_LIST_BYTES = 16 * 1024;
const GRACE_MS = 1000;

/** gRPC over HTTP/2. */
export class GrpcServer {
  private readonly server: Http2Server;
  private readonly sessions = new Set<ServerHttp2Session>();
  private readonly calls = new Set<Call>();
  private closing = false;

  constructor(private readonly options: ServerOptions) {
    const http2 = {
      settings: { ...SETTINGS, maxHeaderListSize: HEADER_LIST_BYTES },
      maxSessionMemory: SESSION_MEMORY_MIB,
    };
    this.server = options.tls
      ? createSecureServer({ ...http2, ...options.tls, allowHTTP1: false, minVersion: 'TLSv1.2' })
      : createServer(http2);
    this.server.on('session', (session) => this.opened(session));
    this.server.on('stream', (stream, headers) => this.begin(stream, headers));
    this.server.on('sessionError', () => {
      // One connection spoke no HTTP/2; node has closed it.
    });
  }

  get openCalls(): number {
    return this.calls.size;
  }

  get connections(): number {
    return this.sessions.size;
  }

  /** Bytes waiting in this process for clients to take them. */
  get bufferedBytes(): number {
    let sum = 0;
    for (const call of this.calls) sum += call.bufferedBytes;
    return sum;
  }

  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(port, host, () => {
        this.server.off('error', reject);
        this.server.on('error', this.options.failed);
        resolve((this.server.address() as AddressInfo).port);
      });
    });
  }

  /** Ends open calls with CANCELLED, so that clients connect again, and then the connections. */
  async close(): Promise<void> {
    this.closing = true;
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    for (const call of this.calls)
      call.finish(Status.CANCELLED, 'the event store is shutting down');
    for (const session of this.sessions) session.close();
    const grace = setTimeout(() => {
      for (const call of this.calls) call.abort();
      for (const session of this.sessions) session.destroy(undefined, constants.NGHTTP2_CANCEL);
    }, GRACE_MS);
    await closed;
    clearTimeout(grace);
  }

  private opened(session: ServerHttp2Session): void {
    this.sessions.add(session);
    // For all calls of a connection together HTTP/2 grants 64 KiB unless told otherwise: four appends of 16 KiB.
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    session.on('close', () => this.sessions.delete(session));
    session.on('error', () => session.destroy());
  }

  private begin(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const call = new Call(stream, headers, this.options.failed);
    this.calls.add(call);
    stream.on('close', () => this.calls.delete(call));
    call.guard(() => this.methodFor(headers).start(call));
  }

  private methodFor(headers: IncomingHttpHeaders): Method {
    if (this.closing) throw new CallError(Status.UNAVAILABLE, 'the event store is shutting down');
    const path = String(headers[':path'] ?? '');
    if (
      headers[':method'] !== 'POST' ||
      !String(headers['content-type'] ?? '').startsWith('application/grpc')
    ) {
      throw new CallError(Status.UNIMPLEMENTED, 'only gRPC is spoken here');
    }
    const method = this.options.methods.get(path);
    if (!method)
      throw new CallError(Status.UNIMPLEMENTED, `${path.slice(0, 200)} is not implemented`);
    const { accepts } = this.options;
    if (!method.anonymous && accepts && !accepts(headers.authorization)) throw accessDenied();
    return method;
  }
}
