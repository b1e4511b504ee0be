import {
  type Appended,
  type EventStore,
  type ExpectedRevision,
  type NewEvent,
  type ReadOptions,
  type RecordedEvent,
  StoreUnavailable,
  StreamNotFound,
  type SubscriptionItem,
  type SubscriptionSource,
} from '@vmux/event-store';
import { timeLimit } from '@vmux/messaging';

export interface GuardOptions {
  /** A stream that may be asked for at any time. */
  readonly probe: string;
  readonly everyMs?: number;
  readonly answersWithinMs?: number;
}

/**
 * Asks the store every now and then whether it is there. While it is not, whoever wants to read or append
 * is told at once instead of after the store's own patience. Subscriptions wait for it as they always do.
 */
export class GuardedStore implements EventStore {
  private down: StoreUnavailable | null = null;
  private readonly underWay = new Set<AbortController>();
  private readonly timer: NodeJS.Timeout;
  private asking = false;
  private heardAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly inner: EventStore,
    private readonly options: GuardOptions,
  ) {
    this.timer = setInterval(() => void this.ask(), options.everyMs ?? 500).unref();
  }

  get answers(): boolean {
    return this.down === null;
  }

  expectUp(): void {
    if (this.down) throw this.down;
  }

  async append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<Appended> {
    this.expectUp();
    const appended = await this.inner.append(stream, expected, events);
    this.heardAt = performance.now();
    return appended;
  }

  async *read(stream: string, options: ReadOptions = {}): AsyncGenerator<RecordedEvent> {
    this.expectUp();
    const given = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, given.signal]) : given.signal;
    this.underWay.add(given);
    try {
      for await (const event of this.inner.read(stream, { ...options, signal })) {
        this.heardAt = performance.now();
        yield event;
      }
    } finally {
      this.underWay.delete(given);
    }
  }

  subscribe(source: SubscriptionSource, signal?: AbortSignal): AsyncIterable<SubscriptionItem> {
    return this.inner.subscribe(source, signal);
  }

  close(): Promise<void> {
    clearInterval(this.timer);
    return this.inner.close();
  }

  private async ask(): Promise<void> {
    if (this.asking) return;
    this.asking = true;
    const askedAt = performance.now();
    const fault = await this.faultOf();
    this.asking = false;
    // One that answers others meanwhile is slow, and not away.
    if (fault && this.heardAt > askedAt) return;
    this.down = fault;
    if (!fault) return;
    for (const each of this.underWay) each.abort(fault);
  }

  private async faultOf(): Promise<StoreUnavailable | null> {
    const signal = timeLimit(this.options.answersWithinMs ?? 1_500);
    try {
      const options = { direction: 'backwards', limit: 1, signal } as const;
      for await (const _ of this.inner.read(this.options.probe, options)) break;
      return null;
    } catch (cause) {
      if (cause instanceof StreamNotFound) return null;
      return cause instanceof StoreUnavailable
        ? cause
        : new StoreUnavailable('it did not answer in time', { cause });
    }
  }
}
