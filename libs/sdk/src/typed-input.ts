import { VmuxError } from './errors';
import { isPassing } from './input';
import { pauseBefore } from './pause';

const maxUntakenBytes = 1024 * 1024;

/**
 * What is typed into a terminal and not known to be taken. Every byte keeps its number until the sandbox has
 * it, so that it can be sent again: what had been taken is dropped there.
 */
export class TypedInput {
  /** Its first byte has the number `taken`. */
  private untaken: Buffer = Buffer.alloc(0);
  private taken = 0;
  private room: () => void = () => undefined;
  /** Until when what is typed waits, to be sent with what was refused before it. */
  private again: NodeJS.Timeout | undefined;
  /** Refused for good as far as is known; whatever is typed next is a reason to try again. */
  private isHeld = false;
  private refusals = 0;
  private failingSince: number | null = null;

  constructor(
    private readonly send: (offset: number, bytes: Buffer) => void,
    private readonly retryForMs: number,
  ) {}

  /** Resolves when there is room for more, or when it is all over. */
  async type(bytes: Buffer, signal: AbortSignal): Promise<void> {
    const at = this.taken + this.untaken.length;
    this.untaken = Buffer.concat([this.untaken, bytes]);
    if (this.isHeld) this.sendAll();
    else if (!this.again) this.send(at, bytes);
    while (this.untaken.length > maxUntakenBytes && !signal.aborted)
      await new Promise<void>((resolve) => {
        this.room = resolve;
      });
  }

  /** To a new connection, which knows nothing of the last one. */
  sendAll(): void {
    this.stop();
    this.isHeld = false;
    this.send(this.taken, this.untaken);
  }

  /** The sandbox has every byte below. */
  drop(next: number): void {
    if (next <= this.taken) return;
    const count = Math.min(next - this.taken, this.untaken.length);
    this.untaken = this.untaken.subarray(count);
    this.taken += count;
    this.refusals = 0;
    this.failingSince = null;
    this.room();
  }

  /** True when it will be sent again: a later number is of no use before the ones that were refused. */
  isTriedAgain(error: VmuxError): boolean {
    if (this.untaken.length === 0) return false;
    const { expected } = error.details;
    if (error.code === 'input_gap' && typeof expected === 'number') this.drop(expected);
    if (this.again) return true;
    this.failingSince ??= Date.now();
    const isOver = Date.now() - this.failingSince >= this.retryForMs;
    if (isOver || !(isPassing(error) || VmuxError.is(error, 'input_gap', 'not_running'))) {
      this.isHeld = true;
      this.failingSince = null;
      return false;
    }
    this.again = setTimeout(() => this.sendAll(), pauseBefore(this.refusals));
    this.refusals += 1;
    return true;
  }

  /** Nothing is sent until there is a connection again. */
  stop(): void {
    clearTimeout(this.again);
    this.again = undefined;
  }

  release(): void {
    this.stop();
    this.room();
  }
}
