import type { ReadReq } from '@eventstore/db-client/generated/streams_pb';
import { type AppendBody, appendBody } from './append-messages';
import { Appender } from './appender';
import { Connection, Pause } from './connection';
import { AppendTooLarge, StoreRefused, StreamNotFound } from './errors';
import { type Fault, faultOf, unavailable } from './faults';
import { Feed } from './feed';
import type {
  Appended,
  EventStore,
  ExpectedRevision,
  NewEvent,
  ReadOptions,
  RecordedEvent,
  SubscriptionItem,
  SubscriptionSource,
} from './port';
import {
  prefixSubscriptionRequest,
  type ReadItem,
  streamReadRequest,
  streamSubscriptionRequest,
} from './read-messages';
import { type EventStoreSettings, targetOf } from './settings';

/** Opens no connection yet: the first call does. Throws at once for settings that cannot work. */
export function connectEventStore(settings: EventStoreSettings): EventStore {
  const { timeoutMs = 10_000, maxAppendBytes = 1024 * 1024 } = settings;
  return new EventStoreConnection(
    new Connection(targetOf(settings), timeoutMs),
    timeoutMs,
    maxAppendBytes,
  );
}

/** How far back to look for an append without an expected revision whose answer got lost. */
const LOST_APPEND_SEARCH = 4096;

/** A read or subscription under way. */
class Reading {
  private feed: Feed | undefined;
  private readonly stopping = new AbortController();

  get stopped(): boolean {
    return this.stopping.signal.aborted;
  }

  use(feed: Feed): Feed {
    this.feed = feed;
    if (this.stopped) feed.cancel();
    return feed;
  }

  stop = (): void => {
    this.stopping.abort();
    this.feed?.cancel();
  };

  rest(pause: Pause): Promise<void> {
    return pause.wait(this.stopping.signal);
  }
}

class EventStoreConnection implements EventStore {
  private readonly appender: Appender;
  private readonly readings = new Set<Reading>();
  private closed = false;

  constructor(
    private readonly connection: Connection,
    private readonly timeoutMs: number,
    private readonly maxAppendBytes: number,
  ) {
    this.appender = new Appender(connection);
  }

  async append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<Appended> {
    if (events.length === 0) throw new StoreRefused('invalid', 'an append without events');
    const body = appendBody(stream, expected, events);
    if (body.payloadBytes > this.maxAppendBytes) throw new AppendTooLarge(this.maxAppendBytes);
    const deadlineMs = Date.now() + this.timeoutMs;
    const pause = new Pause();
    for (let repeated = false; ; repeated = true) {
      try {
        return await this.appender.append(body, deadlineMs);
      } catch (cause) {
        const fault = asFault(cause, stream);
        if (!fault.retry) {
          // The server's own memory of ids may be shorter than the time that the first answer took to
          // get lost: what this very append left in the stream is looked for before it is called wrong.
          const wrong = repeated && fault.error.name === 'WrongRevision';
          const found = wrong ? await this.find(body) : undefined;
          if (found) return found;
          throw fault.error;
        }
        if (this.closed) throw unavailable('closed by this process', fault.error);
        await pause.wait();
        if (Date.now() >= deadlineMs) throw fault.error;
        const found = expected === 'any' ? await this.find(body) : undefined;
        if (found) return found;
      }
    }
  }

  async *read(
    stream: string,
    { from, direction = 'forwards', limit = Infinity, signal }: ReadOptions = {},
  ): AsyncGenerator<RecordedEvent, void, undefined> {
    const step = direction === 'forwards' ? 1 : -1;
    const reading = this.begin(signal);
    const pause = new Pause();
    let next = from;
    let remaining = limit;
    let failingSinceMs: number | undefined;
    try {
      while (remaining > 0 && !(next !== undefined && next < 0)) {
        const request = streamReadRequest(stream, { from: next, direction, limit: remaining });
        let feed: Feed | undefined;
        try {
          feed = reading.use(await Feed.open(this.connection, request));
          for (;;) {
            const batch: readonly ReadItem[] | undefined = await feed.next(this.timeoutMs);
            this.goOn(reading, signal);
            if (!batch) return;
            failingSinceMs = undefined;
            for (const item of batch) {
              if (item.kind === 'notFound') throw new StreamNotFound(stream);
              if (item.kind !== 'event') continue;
              next = item.event.revision + step;
              remaining--;
              yield item.event;
              if (reading.stopped) this.goOn(reading, signal);
            }
          }
        } catch (cause) {
          this.goOn(reading, signal);
          if (cause instanceof StreamNotFound) throw cause;
          const error = this.retryable(cause, stream, feed);
          failingSinceMs ??= Date.now();
          if (Date.now() - failingSinceMs >= this.timeoutMs) throw error;
        } finally {
          feed?.cancel();
        }
        await reading.rest(pause);
        this.goOn(reading, signal);
      }
    } finally {
      this.finish(reading, signal);
    }
  }

  async *subscribe(
    source: SubscriptionSource,
    signal?: AbortSignal,
  ): AsyncGenerator<SubscriptionItem, void, undefined> {
    const place = new Place(source);
    const reading = this.begin(signal);
    const pause = new Pause();
    try {
      while (!reading.stopped) {
        let feed: Feed | undefined;
        try {
          feed = reading.use(await Feed.open(this.connection, place.request()));
          // The server confirms a subscription at once; only then may nothing come for long.
          let waitMs: number | undefined = this.timeoutMs;
          for (;;) {
            const batch: readonly ReadItem[] | undefined = await feed.next(waitMs);
            if (reading.stopped) return;
            if (!batch) break;
            waitMs = undefined;
            pause.reset();
            for (const item of batch) {
              const shown = place.pass(item);
              if (!shown) continue;
              yield shown;
              if (reading.stopped) return;
            }
          }
        } catch (cause) {
          if (reading.stopped) return;
          this.retryable(cause, place.name, feed);
        } finally {
          feed?.cancel();
        }
        await reading.rest(pause);
      }
    } finally {
      this.finish(reading, signal);
    }
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const reading of this.readings) reading.stop();
    this.appender.close();
    this.connection.close();
  }

  /** The outcome of an append whose answer was lost, if the stream has it. */
  private async find({ stream, expected, events }: AppendBody): Promise<Appended | undefined> {
    const range: ReadOptions =
      expected === 'any'
        ? { direction: 'backwards', limit: LOST_APPEND_SEARCH }
        : { from: expected === 'none' ? 0 : expected + 1, limit: events.length };
    const last = events.at(-1)?.id.toLowerCase();
    try {
      for await (const event of this.read(stream, range)) {
        if (event.id.toLowerCase() === last) {
          return { revision: event.revision, position: event.position };
        }
      }
    } catch (cause) {
      if (!(cause instanceof StreamNotFound)) throw cause;
    }
    return undefined;
  }

  private begin(signal: AbortSignal | undefined): Reading {
    const reading = new Reading();
    this.readings.add(reading);
    signal?.addEventListener('abort', reading.stop, { once: true });
    if (this.closed || signal?.aborted) reading.stop();
    return reading;
  }

  private finish(reading: Reading, signal: AbortSignal | undefined): void {
    signal?.removeEventListener('abort', reading.stop);
    this.readings.delete(reading);
  }

  /** A read that is cut short must not look like one that reached the end. */
  private goOn(reading: Reading, signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (reading.stopped) throw unavailable('closed by this process');
  }

  /** Reports a lost connection; throws what another attempt would not change. */
  private retryable(cause: unknown, stream: string, feed: Feed | undefined): Error {
    const fault = asFault(cause, stream);
    if (!fault.retry) throw fault.error;
    if (feed) void this.connection.failed(feed.session, fault.leader);
    return fault.error;
  }
}

/** Where a subscription stands: what it asks for again after its connection was lost. */
class Place {
  readonly name: string;
  private revision: number | undefined;
  private position: bigint | undefined;

  constructor(private readonly source: SubscriptionSource) {
    this.name = 'stream' in source ? source.stream : source.prefixes.join(', ');
    if ('stream' in source) this.revision = source.afterRevision;
    else {
      if (source.prefixes.length === 0) throw new StoreRefused('invalid', 'no prefixes are given');
      this.position = source.afterPosition;
    }
  }

  request(): ReadReq {
    return 'stream' in this.source
      ? streamSubscriptionRequest(this.source.stream, this.revision)
      : prefixSubscriptionRequest(this.source.prefixes, this.position);
  }

  /** Moves on; what the consumer is to see of it. */
  pass(item: ReadItem): SubscriptionItem | undefined {
    switch (item.kind) {
      case 'event':
        this.revision = item.event.revision;
        this.position = item.event.position;
        return { kind: 'event', event: item.event };
      case 'checkpoint':
        this.position = item.position;
        return item;
      case 'caughtUp':
        return item;
      default:
        return undefined;
    }
  }
}

const asFault = (cause: unknown, stream: string): Fault =>
  typeof cause === 'object' && cause !== null && 'retry' in cause
    ? (cause as Fault)
    : faultOf(cause, stream);
