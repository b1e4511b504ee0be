/** Anything that JSON can carry. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** An event to append. A `Uint8Array` is stored as it is, byte for byte; an object is stored as JSON. */
export interface NewEvent {
  /** A UUID. Appending again with the same ids at the same revision changes nothing and succeeds. */
  readonly id: string;
  readonly type: string;
  readonly data: JsonObject | Uint8Array;
  readonly metadata?: JsonObject;
}

export interface RecordedEvent {
  readonly stream: string;
  /** 0 for a stream's first event; gapless within a stream. */
  readonly revision: number;
  /** Grows over all streams, with gaps. */
  readonly position: bigint;
  readonly id: string;
  readonly type: string;
  readonly data: JsonObject | Buffer;
  readonly metadata: JsonObject;
  readonly recordedAt: Date;
}

/** The revision of the stream's last event, `none` for a stream without events, `any` to skip the check. */
export type ExpectedRevision = number | 'none' | 'any';

export interface Appended {
  /** Of the last event appended. */
  readonly revision: number;
  readonly position: bigint;
}

export interface ReadOptions {
  /** Inclusive; without it from the stream's first event (from its last when reading backwards). */
  readonly from?: number;
  readonly direction?: 'forwards' | 'backwards';
  readonly limit?: number;
  readonly signal?: AbortSignal;
}

/** A live stream, or every stream whose name starts with one of the prefixes, in order of position. */
export type SubscriptionSource =
  | { readonly stream: string /** Exclusive. */; readonly afterRevision?: number }
  | { readonly prefixes: readonly string[] /** Exclusive. */; readonly afterPosition?: bigint };

/**
 * `caughtUp` says that everything recorded before the subscription began has been delivered; after a
 * reconnection it can come again. `checkpoint` says that nothing up to the position is still to come, so
 * that a reader of rare events has a recent position to go on from.
 */
export type SubscriptionItem =
  | { readonly kind: 'event'; readonly event: RecordedEvent }
  | { readonly kind: 'checkpoint'; readonly position: bigint }
  | { readonly kind: 'caughtUp' };

/**
 * What the rest of the project knows of the event store. Stream metadata is an append to `$$<stream>` of
 * a `$metadata` event, so truncating (`$tb`) and retention (`$maxCount`) need no verb of their own.
 */
export interface EventStore {
  /**
   * Returns once the events are durable. Throws `WrongRevision` when the stream is not at `expected`, and
   * `StoreUnavailable` when it cannot know: call again with the same ids and the same expected revision.
   */
  append(
    stream: string,
    expected: ExpectedRevision,
    events: readonly NewEvent[],
  ): Promise<Appended>;

  /** Throws `StreamNotFound` for a stream that never had an event or was deleted. */
  read(stream: string, options?: ReadOptions): AsyncIterable<RecordedEvent>;

  /**
   * Everything recorded after the given point and then whatever is appended, in order, without a gap and
   * without repeats, across reconnections. Ends when the signal aborts or the store is closed. The next
   * event is asked for only when the consumer comes back for it: a slow consumer costs bounded memory.
   */
  subscribe(source: SubscriptionSource, signal?: AbortSignal): AsyncIterable<SubscriptionItem>;

  close(): Promise<void>;
}
