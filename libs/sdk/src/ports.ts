import { Duplex } from 'node:stream';
import { openSocket } from './socket';
import type { PortInfo, PreviewToken } from './types';
import type { CallOptions, ChangeOptions, Vmux } from './vmux';

/** The ports of a session's sandbox, and the previews of what listens on them. */
export class Ports {
  private readonly path: string;

  constructor(
    private readonly vmux: Vmux,
    sessionId: string,
  ) {
    this.path = `/v1/sessions/${encodeURIComponent(sessionId)}/ports`;
  }

  /** Those that listen, those that were declared, and those with access of their own. */
  async list({ signal }: CallOptions = {}): Promise<readonly PortInfo[]> {
    const { ports } = await this.vmux.call<{ ports: PortInfo[] }>('GET', this.path, { signal });
    return ports;
  }

  /** A token for one port and the URL that carries it; ends by itself, or by `revokeTokens`. */
  token(
    port: number,
    { ttlMs, ...options }: ChangeOptions & { readonly ttlMs?: number } = {},
  ): Promise<PreviewToken> {
    const body = { ttl: ttlMs === undefined ? undefined : `${ttlMs}ms` };
    return this.vmux.call('POST', `${this.path}/${port}/token`, { ...options, body });
  }

  /** Opens the port to everyone who has its URL; with `wake` a visit wakes the session. */
  async publish(
    port: number,
    { wake = false, ...options }: ChangeOptions & { readonly wake?: boolean } = {},
  ): Promise<void> {
    await this.vmux.call('POST', `${this.path}/${port}/publish`, { ...options, body: { wake } });
  }

  async unpublish(port: number, options: ChangeOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/${port}/unpublish`, options);
  }

  /** Ends every token of the port. */
  async revokeTokens(port: number, options: ChangeOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/${port}/revoke-tokens`, options);
  }

  /** One TCP connection to the port. Its end, and the end of each direction, are those of the socket. */
  async connect(port: number, { signal }: CallOptions = {}): Promise<Duplex> {
    const socket = await openSocket(this.vmux, `${this.path}/${port}/connect`, {}, { signal });
    let isEnded = false;
    const end = () => {
      if (!isEnded) stream.push(null);
      isEnded = true;
    };
    const stream = new Duplex({
      allowHalfOpen: true,
      read: () => socket.resume(),
      write: (piece: Buffer, _encoding, done) => socket.send(piece, done),
      final: (done) => socket.send('end', done),
      destroy: (fault, done) => {
        if (fault) socket.terminate();
        else socket.close(1000);
        done(fault);
      },
    });
    socket.on('message', (message: Buffer, isBinary: boolean) => {
      if (!isBinary) end();
      else if (!isEnded && !stream.push(message)) socket.pause();
    });
    socket.once('close', (code) => {
      // A connection that was cut is not one that has ended.
      if (!isEnded && code !== 1000) stream.destroy(new Error('the connection was cut'));
      else end();
    });
    return stream;
  }
}
