import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2';
import { discoverEndpoint } from '@eventstore/db-client/dist/Client/discovery';
import { credentials } from '@grpc/grpc-js';
import { unavailable } from './faults';
import type { Target } from './settings';

/** What a call may have under way before the other side must wait: HTTP/2's own is 64 KiB. */
const WINDOW_BYTES = 1024 * 1024;

/**
 * The one connection that everything shares. Whoever sees it fail reports it; the next one who asks gets
 * a new one, to the cluster's leader where there is a cluster.
 */
export class Connection {
  private current: Promise<ClientHttp2Session> | undefined;
  private readonly open = new Set<ClientHttp2Session>();
  private leader: string | undefined;
  private closed = false;

  constructor(
    private readonly target: Target,
    private readonly timeoutMs: number,
  ) {}

  async session(): Promise<ClientHttp2Session> {
    if (this.closed) throw unavailable('closed by this process');
    this.current ??= this.dial();
    const dialling = this.current;
    try {
      const session = await dialling;
      // Its 'close' may still be to come.
      if (session.destroyed || session.closed) throw unavailable('the connection was lost');
      return session;
    } catch (cause) {
      if (this.current === dialling) this.current = undefined;
      throw cause;
    }
  }

  headers(path: string): OutgoingHttpHeaders {
    const { authorization, connectionName, cluster } = this.target;
    return {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      'user-agent': 'vmux',
      ...(authorization ? { authorization } : {}),
      ...(connectionName ? { 'connection-name': connectionName } : {}),
      ...(cluster ? { 'requires-leader': 'true' } : {}),
    };
  }

  /** Someone's call failed: calls that go on are left alone, new ones get a new connection. */
  async failed(session: ClientHttp2Session, leader?: string): Promise<void> {
    const current = await this.current?.catch(() => undefined);
    if (current !== session) return;
    this.leader = leader;
    this.current = undefined;
    session.close();
  }

  /** Connections still being made end too, or when they turn out to be made. */
  close(): void {
    this.closed = true;
    for (const session of this.open) session.destroy();
  }

  private async dial(): Promise<ClientHttp2Session> {
    const { tls } = this.target;
    const session = connect(`${tls ? 'https' : 'http'}://${await this.endpoint()}`, {
      ...tls,
      settings: { initialWindowSize: WINDOW_BYTES, enablePush: false },
    });
    this.open.add(session);
    await new Promise<void>((resolve, reject) => {
      const late = () => session.destroy(new Error(`no connection in ${this.timeoutMs} ms`));
      const timer = setTimeout(late, this.timeoutMs);
      session.once('connect', () => resolve());
      session.on('error', (cause) => reject(unavailable(cause.message, cause)));
      session.once('close', () => {
        this.open.delete(session);
        reject(unavailable('the connection was closed'));
        void this.failed(session);
      });
      session.once('connect', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
    });
    if (this.closed) {
      session.destroy();
      throw unavailable('closed by this process');
    }
    session.setLocalWindowSize(WINDOW_BYTES);
    session.once('goaway', () => void this.failed(session));
    this.keepAlive(session);
    return session;
  }

  /** A peer that is gone without a word answers no ping; whoever waits for it is told. */
  private keepAlive(session: ClientHttp2Session): void {
    const { keepAliveIntervalMs, keepAliveTimeoutMs } = this.target;
    if (keepAliveIntervalMs < 0) return;
    let answer: NodeJS.Timeout | undefined;
    const interval = setInterval(() => {
      if (session.destroyed) return;
      const silent = () => session.destroy(new Error('the event store answers no ping'));
      if (keepAliveTimeoutMs >= 0) answer ??= setTimeout(silent, keepAliveTimeoutMs);
      session.ping(() => {
        clearTimeout(answer);
        answer = undefined;
      });
    }, keepAliveIntervalMs);
    session.once('close', () => {
      clearInterval(interval);
      clearTimeout(answer);
    });
  }

  private async endpoint(): Promise<string> {
    const { endpoint, cluster, tls } = this.target;
    if (this.leader) return this.leader;
    if (endpoint) return endpoint;
    if (!cluster) throw new Error('neither a node nor a cluster is named');
    const forGossip = tls
      ? credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null)
      : credentials.createInsecure();
    const { address, port } = await discoverEndpoint(cluster, forGossip);
    return `${address}:${port}`;
  }
}

/** Waits between attempts: 20 ms, doubling up to a second. A success starts again from the shortest. */
export class Pause {
  private nextMs = 20;

  reset(): void {
    this.nextMs = 20;
  }

  async wait(signal?: AbortSignal): Promise<void> {
    const waitMs = this.nextMs * (0.75 + Math.random() / 2);
    this.nextMs = Math.min(1000, this.nextMs * 2);
    if (signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, waitMs);
      signal?.addEventListener('abort', done, { once: true });
    });
  }
}
