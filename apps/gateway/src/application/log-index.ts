import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { decodeLogEvent, LOG_MARK_EVERY, type LogEvent, logStream, Malformed } from '@vmux/events';
import { finalSizeOf, type LogTarget, type Span, sessionOffsetAfter, spanOf } from './log-target';

export interface LogPlace {
  readonly revision: number;
  readonly position: bigint;
  readonly event: LogEvent | null;
}

export interface LogBounds {
  readonly first: number;
  readonly last: number;
  /** What stands at the last revision, where that is known: it helps to guess. */
  readonly end?: LogPlace;
}

/** A revision and the target's offset there. */
interface Fix {
  readonly revision: number;
  readonly offset: number;
}

/** Where to begin reading, and how many events from there on may still be of before the offset. */
export interface Start {
  readonly revision: number;
  readonly within: number;
}

/** What lies between two marks is read at once when it is small, instead of being searched. */
const SMALL_SEGMENT_BYTES = 64 * 1024;
/** After so many guesses within a segment the rest is read. */
const MAX_GUESSES = 4;

/**
 * Finds places in a log by the marks that stand at every 64th revision: a handful of single reads,
 * however long the log is.
 */
export class LogIndex {
  constructor(private readonly store: EventStore) {}

  /** Null for a log without a single event. */
  async bounds(sessionId: string): Promise<LogBounds | null> {
    const [end, first] = await Promise.all([
      this.one(sessionId, { direction: 'backwards' }),
      // Retention drops events at the start: the first that is left may have any revision.
      this.one(sessionId, { from: 0 }),
    ]);
    if (!end) return null;
    return { first: first?.revision ?? end.revision, last: end.revision, end };
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
    { first, last, end }: LogBounds,
    certain = false,
  ): Promise<Start> {
    const isBefore = (place: LogPlace) => standsBefore(place, target, offset, certain);
    let low = Math.ceil(first / LOG_MARK_EVERY);
    let high = Math.floor(last / LOG_MARK_EVERY);
    let before: Fix = { revision: first, offset: 0 };
    let after = (end ? fixOf(end, target) : null) ?? endOf(target, last);
    for (let step = 1; low <= high; step += 1) {
      // Output mostly comes in pieces of like size; where it does not, every third step halves.
      const guesses = after !== null && step % 3 !== 0;
      const middle = guesses ? between(before, after, offset) / LOG_MARK_EVERY : (low + high) / 2;
      const at = Math.min(high, Math.max(low, Math.floor(middle)));
      // The one after it, asked for at once, shows whether a guess was right.
      for (const place of await this.marks(sessionId, at, Math.min(at + 1, high))) {
        const fix = place.at && fixOf(place.at, target);
        if (place.at && isBefore(place.at)) {
          before = { revision: place.at.revision, offset: fix?.offset ?? before.offset };
          low = place.mark + 1;
        } else {
          after = fix ?? after;
          high = place.mark - 1;
          break;
        }
      }
    }
    if (certain || !after) return { revision: before.revision, within: 0 };
    if (after.offset - before.offset <= SMALL_SEGMENT_BYTES)
      return { revision: before.revision, within: after.revision - before.revision };
    const revision = await this.nearest(sessionId, target, offset, before, after);
    return { revision, within: 0 };
  }

  private marks(sessionId: string, first: number, last: number) {
    const numbers = Array.from({ length: last - first + 1 }, (_, index) => first + index);
    return Promise.all(
      numbers.map(async (mark) => ({
        mark,
        at: await this.at(sessionId, mark * LOG_MARK_EVERY),
      })),
    );
  }

  /** From a mark on to the very event, by guesses: what lies before it need not be read. */
  private async nearest(
    sessionId: string,
    target: LogTarget,
    offset: number,
    mark: Fix,
    next: Fix,
  ): Promise<number> {
    let before = mark;
    let after = next;
    for (let left = MAX_GUESSES; left > 0 && after.revision - before.revision > 2; left -= 1) {
      const guess = Math.floor(between(before, after, offset));
      const at = Math.min(after.revision - 1, Math.max(before.revision + 1, guess));
      const place = await this.at(sessionId, at);
      const span = place?.revision === at ? spanAt(place, target) : null;
      if (!span) break;
      // What stands between two pieces, a new size of the terminal for one, belongs to the second.
      if (span.from >= offset) after = { revision: at, offset: span.from };
      else before = { revision: at, offset: span.from };
      if (span.from < offset && offset <= span.to) break;
    }
    return before.revision;
  }

  /** The first offset that has nothing yet: from the last mark and what stands after it. */
  async sizeOf(
    sessionId: string,
    target: LogTarget,
    { first, last, end }: LogBounds,
  ): Promise<number> {
    const told = end && fixOf(end, target);
    if (told) return told.offset;
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

  /** The last events, the newest first. */
  async *readBack(sessionId: string, limit: number, signal: AbortSignal): AsyncGenerator<LogPlace> {
    const options = { direction: 'backwards', limit, signal } as const;
    try {
      for await (const stored of this.store.read(logStream(sessionId), options))
        yield placeOf(stored);
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
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

/** Where the offset would be if all pieces were alike. */
function between(before: Fix, after: Fix | null, offset: number): number {
  if (!after || after.offset <= before.offset) return before.revision;
  const part = (offset - before.offset) / (after.offset - before.offset);
  return before.revision + Math.min(1, Math.max(0, part)) * (after.revision - before.revision);
}

/** Null when the event says nothing about the target's offsets. */
function fixOf({ event, revision }: LogPlace, target: LogTarget): Fix | null {
  if (!event) return null;
  if (target.kind !== 'stream') {
    const offset = sessionOffsetAfter(event);
    return offset === null ? null : { revision, offset };
  }
  if (event.type === 'LogMark') {
    const offset = event.streams[target.exec.id]?.next[target.stream];
    return offset === undefined ? null : { revision, offset };
  }
  if (event.type !== 'LogChunk' && event.type !== 'LogGap') return null;
  const span = spanOf(target, event);
  return span && { revision, offset: span.to };
}

/** A log goes on after an exec that has ended, and its last mark says nothing of it: its size does. */
function endOf(target: LogTarget, revision: number): Fix | null {
  const offset = finalSizeOf(target);
  return offset === null ? null : { revision, offset };
}

const spanAt = ({ event }: LogPlace, target: LogTarget): Span | null =>
  event?.type === 'LogChunk' || event?.type === 'LogGap' ? spanOf(target, event) : null;

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
