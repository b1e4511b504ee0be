import {
  type Appended,
  type EventStore,
  type ExpectedRevision,
  type NewEvent,
  type ReadOptions,
  type RecordedEvent,
  StreamNotFound,
  type SubscriptionItem,
  type SubscriptionSource,
  WrongRevision,
} from '@vmux/event-store';

/** The port in memory, for what a test wants to see or break from the inside. */
export class MemoryStore implements EventStore {
  readonly all: RecordedEvent[] = [];
  reads = 0;
  /** Called before every append; may throw in its place. */
  beforeAppend: (stream: string, events: readonly NewEvent[]) => Promise<void> | void = () => {};
  private readonly wakers = new Set<() => void>();

  async append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<Appended> {
    await this.beforeAppend(stream, events);
    const existing = this.all.filter((event) => event.stream === stream);
    const actual = existing.length - 1;
    const wanted = expected === 'none' ? -1 : expected;
    if (wanted !== 'any' && wanted !== actual) {
      const repeated = events.map((_, index) => existing[wanted + 1 + index]);
      if (repeated.every((event, index) => event?.id === events[index]?.id)) {
        const last = repeated.at(-1);
        if (last) return { revision: last.revision, position: last.position };
      }
      throw new WrongRevision(stream, expected, actual < 0 ? 'none' : actual);
    }
    for (const [index, { id, type, data, metadata }] of events.entries())
      this.all.push({
        stream,
        revision: actual + 1 + index,
        position: BigInt(this.all.length * 10 + 1),
        id,
        type,
        data: data instanceof Uint8Array ? Buffer.from(data) : structuredClone(data),
        metadata: JSON.parse(JSON.stringify(metadata ?? {})),
        recordedAt: new Date(),
      });
    for (const wake of this.wakers) wake();
    const last = this.all.at(-1);
    return { revision: actual + events.length, position: last?.position ?? 0n };
  }

  async *read(stream: string, options: ReadOptions = {}): AsyncIterable<RecordedEvent> {
    this.reads += 1;
    const { from, direction = 'forwards', limit = Number.POSITIVE_INFINITY } = options;
    const events = this.all.filter((event) => event.stream === stream);
    if (events.length === 0) throw new StreamNotFound(stream);
    const selected =
      direction === 'forwards'
        ? events.filter(({ revision }) => revision >= (from ?? 0))
        : events.filter(({ revision }) => revision <= (from ?? Number.MAX_VALUE)).reverse();
    yield* selected.slice(0, limit);
  }

  async *subscribe(
    source: SubscriptionSource,
    signal?: AbortSignal,
  ): AsyncIterable<SubscriptionItem> {
    const wanted = ({ stream, revision, position }: RecordedEvent) =>
      'stream' in source
        ? stream === source.stream && revision > (source.afterRevision ?? -1)
        : source.prefixes.some((prefix) => stream.startsWith(prefix)) &&
          position > (source.afterPosition ?? -1n);
    let next = 0;
    let live = false;
    while (!signal?.aborted) {
      for (; next < this.all.length && !signal?.aborted; next += 1) {
        const event = this.all[next];
        if (event && wanted(event)) yield { kind: 'event', event };
      }
      if (!live) yield { kind: 'caughtUp' };
      live = true;
      if (next < this.all.length) continue;
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.wakers.delete(wake);
          resolve();
        };
        this.wakers.add(wake);
        signal?.addEventListener('abort', wake, { once: true });
      });
    }
  }

  async close(): Promise<void> {}
}
