import { Failure } from '@vmux/events';

/** One thing at a time for each key, in order of arrival; different keys do not wait for one another. */
export class KeyedQueue {
  private readonly tails = new Map<string, { last: Promise<unknown>; waiting: number }>();

  constructor(private readonly maxWaiting: number) {}

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const tail = this.tails.get(key) ?? { last: Promise.resolve(), waiting: 0 };
    if (tail.waiting >= this.maxWaiting)
      throw new Failure('overloaded', `too much is asked of ${key} at once: try again`, true, 1000);
    tail.waiting += 1;
    const mine = tail.last.then(work, work);
    // Whoever waits behind goes on however this ends; the caller sees how it ended.
    tail.last = mine.catch(() => undefined);
    this.tails.set(key, tail);
    try {
      return await mine;
    } finally {
      tail.waiting -= 1;
      if (tail.waiting === 0) this.tails.delete(key);
    }
  }

  /** Until nothing is under way. */
  async idle(): Promise<void> {
    while (this.tails.size > 0) await Promise.all([...this.tails.values()].map(({ last }) => last));
  }
}
