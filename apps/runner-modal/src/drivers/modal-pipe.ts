import { Duplex } from 'node:stream';
import type { ReadableStreamDefaultReader, WritableStreamDefaultWriter } from 'node:stream/web';
import type { ContainerProcess } from 'modal';

const keptDiagnostics = 2_000;
/** Half of what a gRPC server takes in one message unless it is told otherwise. */
const MOST_AT_ONCE = 2 * 1024 * 1024;

/**
 * The byte pipe inside an exec: what is written goes to its stdin, what is read is its stdout. The SDK goes
 * on at the right offset when a stream of either direction breaks, so the pipe itself is exact; when it
 * gives up, the pipe is broken and another one is opened.
 */
export class ModalPipe extends Duplex {
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private reading = false;
  private diagnostics = '';
  private waiting: Buffer[] = [];
  private waitingBytes = 0;
  private roomAgain: (() => void) | undefined;
  private sending: Promise<void> | undefined;

  constructor(private readonly process: ContainerProcess<Uint8Array>) {
    super({ allowHalfOpen: false, writableHighWaterMark: MOST_AT_ONCE });
    this.writer = process.stdin.getWriter();
    this.reader = process.stdout.getReader();
    this.writer.closed.catch(() => undefined);
    this.reader.closed.catch(() => undefined);
    void this.readDiagnostics();
  }

  override _read(): void {
    if (this.reading) return;
    this.reading = true;
    this.reader.read().then(
      ({ done, value }) => {
        this.reading = false;
        if (done) this.finish();
        else if (value.length === 0 || this.push(Buffer.from(value))) this._read();
      },
      (error) => this.destroy(error),
    );
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.waiting.push(chunk);
    this.waitingBytes += chunk.length;
    if (this.waitingBytes < MOST_AT_ONCE) done();
    else this.roomAgain = done;
    this.sending ??= this.send();
  }

  override _writev(
    chunks: { readonly chunk: Buffer }[],
    done: (error?: Error | null) => void,
  ): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'buffer', done);
  }

  override _final(done: (error?: Error | null) => void): void {
    const all = this.sending ?? Promise.resolve();
    all.then(() => this.writer.close()).then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // The process ends with its input; what is left of its output is nobody's.
    this.writer.close().catch(() => undefined);
    this.reader.cancel().catch(() => undefined);
    done(error);
  }

  /** A call takes a round trip: what comes while one is under way goes with the next, as much as it holds. */
  private async send(): Promise<void> {
    try {
      while (this.waitingBytes > 0 && !this.destroyed) {
        const all = Buffer.concat(this.waiting);
        const piece = all.subarray(0, MOST_AT_ONCE);
        const rest = all.subarray(piece.length);
        this.waiting = rest.length > 0 ? [rest] : [];
        this.waitingBytes = rest.length;
        if (this.waitingBytes < MOST_AT_ONCE) this.makeRoom();
        await this.writer.write(piece);
      }
      // At once: nothing comes between the last look and this.
      this.sending = undefined;
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  }

  private makeRoom(): void {
    const { roomAgain } = this;
    this.roomAgain = undefined;
    roomAgain?.();
  }

  private finish(): void {
    if (this.readableEnded || this.destroyed) return;
    if (this.diagnostics)
      this.destroy(new Error(`the pipe's process said: ${this.diagnostics.trim()}`));
    else this.push(null);
  }

  private async readDiagnostics(): Promise<void> {
    const reader = this.process.stderr.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        this.diagnostics = `${this.diagnostics}${Buffer.from(value).toString('utf8')}`.slice(
          -keptDiagnostics,
        );
      }
    } catch {
      // The stream of bytes fails with it and says why.
    }
  }
}
