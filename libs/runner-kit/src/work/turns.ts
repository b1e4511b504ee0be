import { DriverUnavailable } from '../errors';

/** So many at once; the others wait in order, each for a bounded time. */
export class Turns {
  private busy = 0;
  private readonly waiting = new Set<() => void>();

  constructor(
    private readonly atOnce: number,
    private readonly patienceMs: number,
  ) {}

  async run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.mine(signal);
    try {
      return await work();
    } finally {
      this.pass();
    }
  }

  private async mine(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.busy < this.atOnce) {
      this.busy++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const settle = (act: () => void) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', abort);
        this.waiting.delete(take);
        act();
      };
      const take = () => settle(resolve);
      const abort = () => settle(() => reject(signal.reason));
      const late = () =>
        settle(() => reject(new DriverUnavailable('too much of this is under way: try again')));
      const timer = setTimeout(late, this.patienceMs);
      signal.addEventListener('abort', abort, { once: true });
      this.waiting.add(take);
    });
  }

  /** To whoever has waited longest. */
  private pass(): void {
    const [next] = this.waiting;
    if (next) next();
    else this.busy--;
  }
}
