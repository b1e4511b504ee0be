import { Duplex } from 'node:stream';

const headerBytes = 8;
const stdout = 1;
const keptDiagnostics = 2_000;

/**
 * The byte pipe inside an attached exec: what is written goes to its stdin, what is read is its stdout,
 * which the engine wraps in frames of `stream · 3 × 0 · u32 length`. The engine is trusted to frame; what
 * is inside the frames is not.
 */
export class ExecPipe extends Duplex {
  private header = Buffer.alloc(0);
  private inFrame = 0;
  private stream = 0;
  private diagnostics = '';

  constructor(private readonly attached: Duplex) {
    super({ allowHalfOpen: false });
    attached.on('data', (chunk: Buffer) => this.absorb(chunk));
    attached.on('end', () => this.finish());
    attached.on('close', () => this.finish());
    attached.on('error', (error) => this.destroy(error));
  }

  override _read(): void {
    this.attached.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    if (this.attached.write(chunk)) done();
    else this.attached.once('drain', done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.attached.end(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.attached.destroy();
    done(error);
  }

  private absorb(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.inFrame === 0) {
        const missing = headerBytes - this.header.length;
        this.header = Buffer.concat([this.header, rest.subarray(0, missing)]);
        rest = rest.subarray(missing);
        if (this.header.length < headerBytes) return;
        this.stream = this.header[0] ?? 0;
        this.inFrame = this.header.readUInt32BE(4);
        this.header = Buffer.alloc(0);
        continue;
      }
      const body = rest.subarray(0, this.inFrame);
      rest = rest.subarray(body.length);
      this.inFrame -= body.length;
      if (this.stream === stdout) this.deliver(body);
      else this.diagnostics = `${this.diagnostics}${body.toString('utf8')}`.slice(-keptDiagnostics);
    }
  }

  private deliver(body: Buffer): void {
    if (!this.push(body)) this.attached.pause();
  }

  private finish(): void {
    if (this.readableEnded || this.destroyed) return;
    if (this.diagnostics)
      this.destroy(new Error(`the pipe's process said: ${this.diagnostics.trim()}`));
    else this.push(null);
  }
}
