import { Duplex } from 'node:stream';
import type { OpenedStream } from '@vmux/tunnel';

/** A connection to a port of a sandbox, as a socket. */
export class TunnelSocket extends Duplex {
  private isReading = false;
  private wanted: () => void = () => undefined;

  constructor(private readonly tunnel: OpenedStream) {
    super({ allowHalfOpen: true });
  }

  override _read(): void {
    if (this.isReading) this.wanted();
    else void this.pump();
  }

  /**
   * A write that fails says nothing: an app may answer and close without having read everything. Whether
   * the connection broke is told where it is read, after what had arrived before.
   */
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.tunnel.send(chunk).then(done, () => done());
  }

  override _final(done: () => void): void {
    this.tunnel.end();
    done();
  }

  override _destroy(fault: Error | null, done: (fault: Error | null) => void): void {
    this.tunnel.cancel();
    this.wanted();
    done(fault);
  }

  private async pump(): Promise<void> {
    this.isReading = true;
    try {
      for await (const piece of this.tunnel.receive()) {
        if (this.destroyed) return;
        if (!this.push(piece))
          await new Promise<void>((resolve) => {
            this.wanted = resolve;
          });
      }
      if (!this.destroyed) this.push(null);
    } catch (fault) {
      this.destroy(fault instanceof Error ? fault : new Error(String(fault)));
    }
  }
}
