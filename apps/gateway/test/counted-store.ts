import { connectEventStore, type EventStore } from '@vmux/event-store';
import { releaseLater, startEventStore } from '@vmux/testing';

/** Counts what is read: an index that scans would show here. */
export class CountedStore implements EventStore {
  events = 0;
  reads = 0;
  subscriptions = 0;

  private constructor(private readonly inner: EventStore) {}

  static async start(): Promise<CountedStore> {
    const server = await startEventStore({ insecure: true });
    const inner = connectEventStore({ url: server.url });
    releaseLater(() => inner.close());
    return new CountedStore(inner);
  }

  countAgain(): void {
    Object.assign(this, { events: 0, reads: 0, subscriptions: 0 });
  }

  append(...args: Parameters<EventStore['append']>) {
    return this.inner.append(...args);
  }

  async *read(...args: Parameters<EventStore['read']>) {
    this.reads += 1;
    for await (const event of this.inner.read(...args)) {
      this.events += 1;
      yield event;
    }
  }

  subscribe(...args: Parameters<EventStore['subscribe']>) {
    this.subscriptions += 1;
    return this.inner.subscribe(...args);
  }

  close() {
    return this.inner.close();
  }
}
