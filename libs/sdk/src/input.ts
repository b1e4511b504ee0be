import { VmuxError } from './errors';
import { pause, pauseBefore } from './pause';
import type { CommandInfo } from './types';
import type { ByteSource, CallOptions, Vmux } from './vmux';

const maxPieceBytes = 1024 * 1024;
/** A request that waits for a slow reader is let go of and asked again: what was taken is not taken twice. */
const attemptMs = 60_000;

/** What a request can be repeated after: input of the same writer and offset is taken once. */
export const isPassing = (fault: unknown): fault is VmuxError =>
  fault instanceof VmuxError &&
  (fault.retryable || VmuxError.is(fault, 'tunnel_broken', 'stale_epoch'));

let lastWriter = 0;

/** Writers grow with time, in microseconds. */
export function nextWriter(): number {
  lastWriter = Math.max(lastWriter + 1, Date.now() * 1000 + Math.floor(Math.random() * 1000));
  return lastWriter;
}

/**
 * One writer of a command's input. Every byte is taken at most once, over cut connections and gateways
 * that are started again. Resolves when the sandbox has taken the bytes: a slow reader holds it back.
 */
export class Input {
  private readonly writer = nextWriter();
  private offset = 0;
  private turn: Promise<void> = Promise.resolve();

  constructor(
    private readonly vmux: Vmux,
    private readonly path: string,
  ) {}

  /** Fails with `exec_ended` when nobody reads any more. */
  write(bytes: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    return this.inTurn(async () => {
      const all = typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
      for (let at = 0; at < all.length; at += maxPieceBytes)
        await this.give(all.subarray(at, at + maxPieceBytes), false, options);
    });
  }

  /** Nothing follows: a pipe is closed, on a terminal the end is typed. */
  end(options: CallOptions = {}): Promise<void> {
    return this.inTurn(() => this.give(new Uint8Array(), true, options));
  }

  /** Everything, then the end. A command that ends without reading all of it is no fault. */
  async giveAll(
    source: string | Uint8Array | ByteSource,
    options: CallOptions = {},
  ): Promise<void> {
    try {
      for await (const bytes of sourceOf(source)) await this.write(bytes, options);
      await this.end(options);
    } catch (fault) {
      if (!(fault instanceof VmuxError && fault.code === 'exec_ended')) throw fault;
    }
  }

  private inTurn(work: () => Promise<void>): Promise<void> {
    const mine = this.turn.then(work);
    this.turn = mine.catch(() => undefined);
    return mine;
  }

  private async give(bytes: Uint8Array, eof: boolean, { signal }: CallOptions): Promise<void> {
    const { writer, offset } = this;
    const query = { writer, offset, eof: eof || undefined };
    let failingSince: number | null = null;
    for (let attempt = 0; ; attempt += 1) {
      const enough = AbortSignal.timeout(attemptMs);
      const either = signal ? AbortSignal.any([signal, enough]) : enough;
      try {
        const path = `${this.path}/stdin`;
        const request = { query, body: bytes, signal: either };
        const { next } = await this.vmux.once<{ next: number }>('POST', path, request);
        this.offset = next;
        return;
      } catch (fault) {
        signal?.throwIfAborted();
        if (enough.aborted || (await this.isStillToStart(fault, signal))) {
          failingSince = null;
          continue;
        }
        if (!isPassing(fault)) throw fault;
        failingSince ??= Date.now();
        if (Date.now() - failingSince >= this.vmux.retryForMs) throw fault;
      }
      await pause(pauseBefore(attempt), signal);
    }
  }

  /** A sandbox may take long to come: what waits for it is not refused. */
  private async isStillToStart(fault: unknown, signal: AbortSignal | undefined): Promise<boolean> {
    if (!(fault instanceof VmuxError && fault.code === 'not_running')) return false;
    const { status } = await this.vmux.call<CommandInfo>('GET', this.path, { signal });
    if (status !== 'queued' && status !== 'dispatched') return false;
    await pause(pauseBefore(10), signal);
    return true;
  }
}

export async function* sourceOf(given: string | Uint8Array | ByteSource): ByteSource {
  if (typeof given === 'string') yield Buffer.from(given);
  else if (given instanceof Uint8Array) yield given;
  else yield* given;
}
