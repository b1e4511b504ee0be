import type { FastifyReply } from 'fastify';

const STALLED_AFTER_MS = 300_000;

/**
 * A response that is written piece by piece. Each piece waits until the one before has left: a reader
 * that does not read costs its socket's buffer and one piece, and after minutes its connection.
 */
export class Outgoing {
  private readonly gone = new AbortController();
  private started = false;

  constructor(
    private readonly reply: FastifyReply,
    private readonly headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ) {
    reply.raw.once('close', () => this.gone.abort());
    signal.addEventListener('abort', () => this.gone.abort(), { once: true });
    if (signal.aborted) this.gone.abort();
  }

  /** Aborts when nobody reads any more. */
  get signal(): AbortSignal {
    return this.gone.signal;
  }

  begin(status = 200): void {
    this.started = true;
    this.reply.hijack();
    const common = this.reply.getHeaders() as Record<string, string>;
    this.reply.raw.writeHead(status, { ...common, ...this.headers });
    this.reply.raw.flushHeaders();
  }

  get hasBegun(): boolean {
    return this.started;
  }

  async write(data: string | Uint8Array): Promise<void> {
    const { raw } = this.reply;
    if (this.signal.aborted || raw.destroyed) return;
    if (raw.write(data)) return;
    await this.drained();
  }

  /** For what may be lost, such as keep-alives: not written while the reader is behind. */
  writeIfIdle(data: string): void {
    const { raw } = this.reply;
    if (!this.signal.aborted && !raw.destroyed && !raw.writableNeedDrain) raw.write(data);
  }

  private drained(): Promise<void> {
    const { raw } = this.reply;
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        raw.off('drain', done);
        this.signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(() => raw.destroy(), STALLED_AFTER_MS);
      raw.once('drain', done);
      this.signal.addEventListener('abort', done);
    });
  }

  end(trailers?: Readonly<Record<string, string>>): void {
    const { raw } = this.reply;
    if (raw.destroyed) return;
    if (trailers) raw.addTrailers(trailers);
    raw.end();
  }

  /** A cut connection is no end: the reader knows that something is missing. */
  cut(): void {
    this.reply.raw.destroy();
  }
}
