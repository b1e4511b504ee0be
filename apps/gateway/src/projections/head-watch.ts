import type { Head, RowStore } from './row-store';

interface Waiter {
  readonly done: (head: Head) => boolean;
  readonly settle: (head: Head) => void;
  readonly fail: (fault: unknown) => void;
}

const EVERY_MS = 15;

/** Lets any number of callers wait for a position at the cost of one question at a time. */
export class HeadWatch {
  private readonly waiters = new Set<Waiter>();
  private asking = false;

  constructor(private readonly rows: RowStore) {}

  /** The head once it is complete and at the position, or as it is when the time is up. */
  async reached(position: bigint | null, timeoutMs: number): Promise<Head> {
    const done = (head: Head) =>
      head.complete && (position === null || (head.position !== null && head.position >= position));
    const first = await this.rows.head();
    if (done(first)) return first;
    return new Promise<Head>((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        this.waiters.delete(waiter);
      };
      const waiter: Waiter = {
        done,
        settle: (head) => {
          leave();
          resolve(head);
        },
        fail: (fault) => {
          leave();
          reject(fault);
        },
      };
      const timer = setTimeout(() => this.rows.head().then(waiter.settle, waiter.fail), timeoutMs);
      this.waiters.add(waiter);
      void this.ask();
    });
  }

  private async ask(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    while (this.waiters.size > 0) {
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      try {
        const head = await this.rows.head();
        for (const waiter of [...this.waiters]) if (waiter.done(head)) waiter.settle(head);
      } catch (fault) {
        for (const waiter of [...this.waiters]) waiter.fail(fault);
      }
    }
    this.asking = false;
  }
}
