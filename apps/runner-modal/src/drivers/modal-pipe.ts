import { Duplex } from 'node:stream';
import type { ReadableStreamDefaultReader, WritableStreamDefaultWriter } from 'node:stream/web';
import type { ContainerProcess } from 'modal';

const keptDiagnostics = 2_000;
/** What piles up while a call is under way goes with the next one: a call takes a round trip. */
const MOST_QUEUED_BYTES = 1024 * 1024;

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

  constructor(private readonly process: ContainerProcess<Uint8Array>) {
    super({ allowHalfOpen: false, writableHighWaterMark: MOST_QUEUED_BYTES });
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
    this.writer.write(chunk).then(() => done(), done);
  }

  /** One call for what piled up while the last one was under way. */
  override _writev(
    chunks: { readonly chunk: Buffer }[],
    done: (error?: Error | null) => void,
  ): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'buffer', done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.writer.close().then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // The process ends with its input; what is left of its output is nobody's.
    this.writer.close().catch(() => undefined);
    this.reader.cancel().catch(() => undefined);
    done(error);
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
