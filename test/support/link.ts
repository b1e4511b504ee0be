import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { releaseLater } from '@vmux/testing';

/** The network between one process and one server: it can be cut, held up and slowed down. */
export class Link {
  private readonly pairs = new Set<readonly [Socket, Socket]>();
  private isCut = false;
  private isHeld = false;
  private delayMs = 0;

  private constructor(
    readonly name: string,
    private readonly server: Server,
    private readonly targetPort: number,
  ) {
    server.on('connection', (near: Socket) => this.accept(near));
  }

  static async to(targetPort: number, name: string): Promise<Link> {
    const server = createServer({ pauseOnConnect: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const link = new Link(name, server, targetPort);
    releaseLater(() => link.close());
    return link;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Every connection breaks, and no new one is made. */
  cut(): void {
    this.isCut = true;
    for (const pair of this.pairs) this.drop(pair);
  }

  /** Connections stay and nothing arrives: what a lost route looks like. */
  hold(): void {
    this.isHeld = true;
    for (const sockets of this.pairs) for (const socket of sockets) socket.pause();
  }

  slow(delayMs: number): void {
    this.delayMs = delayMs;
  }

  heal(): void {
    this.isCut = false;
    this.isHeld = false;
    this.delayMs = 0;
    for (const sockets of this.pairs) for (const socket of sockets) socket.resume();
  }

  private accept(near: Socket): void {
    if (this.isCut) {
      near.destroy();
      return;
    }
    const far = connect(this.targetPort, '127.0.0.1');
    const pair = [near, far] as const;
    this.pairs.add(pair);
    this.carry(near, far, pair);
    this.carry(far, near, pair);
    if (!this.isHeld) near.resume();
  }

  private carry(from: Socket, to: Socket, pair: readonly [Socket, Socket]): void {
    from.setNoDelay(true);
    // In order: a later piece never overtakes one that is still delayed.
    let ready = Promise.resolve();
    from.on('data', (piece: Buffer) => {
      const { delayMs } = this;
      const wait = delayMs > 0 ? new Promise<void>((done) => setTimeout(done, delayMs)) : null;
      ready = ready.then(async () => {
        await wait;
        if (to.destroyed || to.write(piece)) return;
        from.pause();
        to.once('drain', () => this.isHeld || from.resume());
      });
    });
    from.on('end', () => void ready.then(() => to.end()));
    from.on('error', () => this.drop(pair));
    from.on('close', () => this.drop(pair));
  }

  private drop(pair: readonly [Socket, Socket]): void {
    this.pairs.delete(pair);
    for (const socket of pair) socket.destroy();
  }

  private async close(): Promise<void> {
    this.cut();
    this.server.close();
    await once(this.server, 'close');
  }
}
