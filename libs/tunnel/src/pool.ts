import { type OpenedStream, type TunnelAddress, TunnelConnection } from './client';
import { TunnelUnreachable } from './errors';

interface Entry {
  readonly address: TunnelAddress;
  readonly connection: Promise<TunnelConnection>;
}

/** One connection to each runner, dialled when it is needed and again by the next call after it broke. */
export class Tunnels {
  private readonly entries = new Map<string, Entry>();
  private closed = false;

  /** Opens a stream to the runner that goes by this name now, at this address. */
  async open(runnerId: string, address: TunnelAddress, request: unknown): Promise<OpenedStream> {
    const connection = await this.connection(runnerId, address);
    return connection.open(request);
  }

  close(): void {
    this.closed = true;
    for (const runnerId of [...this.entries.keys()]) this.drop(runnerId);
  }

  private connection(runnerId: string, address: TunnelAddress): Promise<TunnelConnection> {
    if (this.closed) throw new TunnelUnreachable('this end is closing');
    const known = this.entries.get(runnerId);
    if (known && isSame(known.address, address)) return known.connection;
    // A runner that was started again has another token: the old connection leads nowhere.
    if (known) this.drop(runnerId);
    const entry = { address, connection: TunnelConnection.dial(address) };
    this.entries.set(runnerId, entry);
    const forget = () => {
      if (this.entries.get(runnerId) === entry) this.entries.delete(runnerId);
    };
    entry.connection.then((connection) => connection.whenEnded(forget), forget);
    return entry.connection;
  }

  private drop(runnerId: string): void {
    const entry = this.entries.get(runnerId);
    this.entries.delete(runnerId);
    entry?.connection.then(
      (connection) => connection.close(),
      // Told to whoever dialled.
      () => undefined,
    );
  }
}

const isSame = (a: TunnelAddress, b: TunnelAddress): boolean =>
  a.url === b.url && a.token === b.token;
