import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { decodeLogEvent, LOG_MARK_EVERY, type LogEvent, logStream, Malformed } from '@vmux/events';
import { type LogTarget, sessionOffsetAfter, spanOf } from './log-target';

export interface LogPlace {
  readonly revision: number;
  readonly position: bigint;
  readonly event: LogEvent | null;
}

export interface LogBounds {
  readonly first: number;
  readonly last: number;
}

/**
 * Finds places in a log by the marks that stand at every 64th revision: a handful of single reads,
 * however long the log is.
 */
export class LogIndex {
  constructor(private readonly store: EventStore) {}

  /** Null for a log without a single event. */
  async bounds(sessionId: string): Promise<LogBounds | null> {
    const last = await this.one(sessionId, { direction: 'backwards' });
    if (!last) return null;
    // Retention drops events at the start: the first that is left may have any revision.
    const first = await this.one(sessionId, { from: 0 });
    return { first: first?.revision ?? last.revision, last: last.revision };
  }

  at(sessionId: string, revision: number): Promise<LogPlace | null> {
    return this.one(sessionId, { from: revision });
  }

  /**
   * A revision to start from such that everything at `offset` and after it stands there or later. What
   * the marks say about one exec's streams is taken as a hint: `certain` uses only what cannot mislead.
   */
  async startOf(
    sessionId: string,
    target: LogTarget,
    offset: number,
    { first, last }: LogBounds,
    certain = false,
  ): Promise<number> {
    const isBefore = (place: LogPlace) => standsBefore(place, target, offset, certain);
    let low = Math.ceil(first / LOG_MARK_EVERY);
    let high = Math.floor(last / LOG_MARK_EVERY);
    let start = first;
    while (low <= high) {
      const middle = Math.floor((low + high) / 2);
      const place = await this.at(sessionId, middle * LOG_MARK_EVERY);
      if (place && isBefore(place)) {
        start = place.revision;
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return start;
  }

  /** The first offset that has nothing yet: from the last mark and what stands after it. */
  async sizeOf(sessionId: string, target: LogTarget, { first, last }: LogBounds): Promise<number> {
    const from = Math.max(first, Math.floor(last / LOG_MARK_EVERY) * LOG_MARK_EVERY);
    let size = 0;
    for await (const { event } of this.read(sessionId, from, last - from + 1)) {
      if (event) size = Math.max(size, sizeAfter(target, event));
    }
    return size;
  }

  async *read(
    sessionId: string,
    from: number,
    limit: number,
    signal?: AbortSignal,
  ): AsyncGenerator<LogPlace> {
    const events = this.store.read(logStream(sessionId), { from, limit, signal });
    for await (const stored of events) yield placeOf(stored);
  }

  private async one(
    sessionId: string,
    options: { from?: number; direction?: 'backwards' },
  ): Promise<LogPlace | null> {
    try {
      const events = this.store.read(logStream(sessionId), { ...options, limit: 1 });
      for await (const stored of events) return placeOf(stored);
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    return null;
  }
}

export const placeOf = (stored: RecordedEvent): LogPlace => ({
  revision: stored.revision,
  position: stored.position,
  event: decoded(stored),
});

/** Bytes that cannot be read are a fault; a mark that cannot is one hint less. */
function decoded(stored: RecordedEvent): LogEvent | null {
  try {
    return decodeLogEvent(stored);
  } catch (cause) {
    if (cause instanceof Malformed && stored.type === 'LogMark') return null;
    const { stream, revision } = stored;
    throw new Error(`revision ${revision} of ${stream} cannot be read`, { cause });
  }
}

/** Whether everything that is asked for comes after this mark. In doubt it does not. */
function standsBefore(
  { event, position }: LogPlace,
  target: LogTarget,
  offset: number,
  certain: boolean,
): boolean {
  if (target.kind !== 'session' && position < target.exec.issuedPosition) return true;
  if (!event) return false;
  if (target.kind !== 'stream') return (sessionOffsetAfter(event) ?? Infinity) <= offset;
  const { exec, stream } = target;
  if (certain || (exec.endedPosition !== null && position > exec.endedPosition)) return false;
  if (event.type !== 'LogMark') return false;
  const cursor = event.streams[exec.id];
  if (cursor) return cursor.next[stream] <= offset;
  // Not begun yet: an exec that has written stays in the marks until its end is recorded.
  return !event.closed && (exec.epoch === null || event.epoch <= exec.epoch);
}

function sizeAfter(target: LogTarget, event: LogEvent): number {
  if (target.kind !== 'stream') return sessionOffsetAfter(event) ?? 0;
  if (event.type === 'LogMark') return event.streams[target.exec.id]?.next[target.stream] ?? 0;
  if (event.type !== 'LogChunk' && event.type !== 'LogGap') return 0;
  return spanOf(target, event)?.to ?? 0;
}
