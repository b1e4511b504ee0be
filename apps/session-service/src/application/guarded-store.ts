import {
  type Appended,
  type EventStore,
  type ExpectedRevision,
  type NewEvent,
  type ReadOptions,
  type RecordedEvent,
  StoreUnavailable,
  type SubscriptionItem,
  type SubscriptionSource,
} from '@vmux/event-store';

/**
 * The event store, with a memory of whether it answers: while it does not, nobody waits for it to the end
 * of the timeout. Whoever probes it says when it is back.
 */
export class GuardedStore implements EventStore {
  private down = false;

  constructor(private readonly store: EventStore) {}

  /** What a probe found. */
  answers(does: boolean): void {
    this.down = !does;
  }

  append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<Appended> {
    return this.watched(() => this.store.append(stream, expected, events));
  }

  async *read(stream: string, options?: ReadOptions): AsyncIterable<RecordedEvent> {
    this.expectUp();
    try {
      yield* this.store.read(stream, options);
    } catch (fault) {
      throw this.noted(fault);
    }
  }

  subscribe(source: SubscriptionSource, signal?: AbortSignal): AsyncIterable<SubscriptionItem> {
    return this.store.subscribe(source, signal);
  }

  close(): Promise<void> {
    return this.store.close();
  }

  private async watched<T>(call: () => Promise<T>): Promise<T> {
    this.expectUp();
    try {
      return await call();
    } catch (fault) {
      throw this.noted(fault);
    }
  }

  private expectUp(): void {
    if (this.down) throw new StoreUnavailable('it did not answer a moment ago');
  }

  private noted(fault: unknown): unknown {
    if (fault instanceof StoreUnavailable) this.down = true;
    return fault;
  }
}
