import { type EventStore, StreamNotFound } from '@vmux/event-store';
import { logStream } from '@vmux/events';
import { type ExecView, execHasEnded } from './exec-view';
import { Cursor, type LogItem, reaches } from './log-cursor';
import { type LogBounds, LogIndex, type LogPlace, placeOf, type Start } from './log-index';
import { finalSizeOf, type LogTarget, sessionOffsetBefore } from './log-target';
import type { SessionReader } from './session-reader';
import { hasEnded, type SessionView } from './session-view';

export interface LogRequest {
  readonly sessionId: string;
  readonly target: LogTarget;
  readonly offset: number;
  /** Of the event that the reader saw last; checked before it is used. */
  readonly revisionHint?: number;
  /** Goes on with what comes until the target has ended and everything is out. */
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

/** The offset lies beyond everything that is or, when the target has ended, ever will be. */
export class OffsetPastEnd extends Error {
  readonly code = 'offset_past_end';
  constructor(
    readonly offset: number,
    readonly size: number,
  ) {
    super(`the log ends at ${size}: offset ${offset} does not exist`);
    this.name = 'OffsetPastEnd';
  }
}

/** Where reading starts; `certain` when nothing of the target stands before it. */
interface LogStart extends Start {
  readonly certain: boolean;
  readonly offset: number;
}

const PAGE_EVENTS = 64;
const BEGINNING_EVENTS = 8;
const RECENT_EVENTS = 16;
const RECENT_BYTES = 64 * 1024;

/** Reads a log as exact bytes from any offset: past, live, or the one after the other. */
export class LogReader {
  private readonly index: LogIndex;

  constructor(
    private readonly store: EventStore,
    private readonly sessions: SessionReader,
  ) {
    this.index = new LogIndex(store);
  }

  /** Throws `OffsetPastEnd` before anything is read; afterwards yields items in order of offset. */
  async open(request: LogRequest): Promise<AsyncGenerator<LogItem, LogEnd>> {
    const hinted = await this.hinted(request);
    if (hinted) return this.items(request, hinted);
    const bounds = await this.index.bounds(request.sessionId);
    const size = bounds ? await this.sizeOf(request, bounds) : 0;
    if (request.offset > size) {
      const over = await this.isOver(request);
      if (!request.follow || over) throw new OffsetPastEnd(request.offset, size);
    }
    const { offset } = request;
    const nothingYet = { revision: 0, within: 0, certain: true, offset };
    return this.items(request, bounds ? await this.startOf(request, bounds) : nothingYet);
  }

  /**
   * The events from the end of the log back to where the exec was issued, in order, if they are few: what
   * it wrote is among them, for one read instead of several. Null when they are not, or it has not ended.
   */
  async recent(
    sessionId: string,
    exec: ExecView,
    signal: AbortSignal,
  ): Promise<readonly LogPlace[] | null> {
    const { sizes } = exec;
    const bytes = sizes ? sizes.stdout + sizes.stderr + sizes.pty : Number.POSITIVE_INFINITY;
    if (bytes === 0 || bytes > RECENT_BYTES) return null;
    const places: LogPlace[] = [];
    for await (const place of this.index.readBack(sessionId, RECENT_EVENTS, signal)) {
      if (place.position < exec.issuedPosition) return places.reverse();
      places.push(place);
      if (place.revision === 0) return places.reverse();
    }
    return null;
  }

  private async *items(request: LogRequest, start: LogStart): AsyncGenerator<LogItem, LogEnd> {
    const cursor = new Cursor(request.target, start.offset);
    for await (const place of this.places(request, start, cursor)) {
      if (!start.certain && cursor.isAhead(place)) {
        // The marks misled: the whole of what the exec may have written is read instead.
        return yield* this.again(request, cursor.offset);
      }
      yield* cursor.take(place);
    }
    const final = finalSizeOf(request.target);
    if (final !== null && cursor.offset < final && !request.signal.aborted) {
      if (!start.certain) return yield* this.again(request, cursor.offset);
      yield cursor.missing(final);
    }
    return { next: cursor.offset, over: await this.isOver(request) };
  }

  private async *again(request: LogRequest, offset: number): AsyncGenerator<LogItem, LogEnd> {
    const cursor = new Cursor(request.target, offset);
    const bounds = await this.index.bounds(request.sessionId);
    const start = bounds
      ? await this.index.startOf(request.sessionId, request.target, offset, bounds, true)
      : { revision: 0, within: 0 };
    for await (const place of this.places(request, start, cursor)) yield* cursor.take(place);
    const final = finalSizeOf(request.target);
    if (final !== null && cursor.offset < final && !request.signal.aborted)
      yield cursor.missing(final);
    return { next: cursor.offset, over: await this.isOver(request) };
  }

  /** The event that the reader says it saw last, if it is there and touches the offset. */
  private async hinted(request: LogRequest): Promise<LogStart | null> {
    const { sessionId, target, offset, revisionHint: revision } = request;
    const place = revision === undefined ? null : await this.index.at(sessionId, revision);
    if (!place || place.revision !== revision || !reaches(place, target, offset)) return null;
    return { revision, within: 1, certain: true, offset };
  }

  private async startOf(
    { sessionId, target, offset }: LogRequest,
    bounds: LogBounds,
  ): Promise<LogStart> {
    const start = await this.index.startOf(sessionId, target, offset, bounds);
    if (target.kind !== 'exec') return { ...start, certain: target.kind === 'session', offset };
    // What others wrote before the exec was issued is not missing from what it wrote.
    const place = await this.index.at(sessionId, start.revision);
    const begins = place?.event ? sessionOffsetBefore(place.event) : 0;
    const isCut = place !== null && bounds.first > 0 && place.position > target.exec.issuedPosition;
    return { ...start, certain: true, offset: isCut ? offset : Math.max(offset, begins) };
  }

  private places(request: LogRequest, start: Start, cursor: Cursor): AsyncGenerator<LogPlace> {
    return request.follow
      ? this.followed(request, start, cursor)
      : this.recorded(request, start.revision, cursor);
  }

  /** In pages, so that a slow reader holds one page and no more. */
  private async *recorded(
    { sessionId, target, signal }: LogRequest,
    from: number,
    cursor: Cursor,
  ): AsyncGenerator<LogPlace> {
    const bounds = await this.index.bounds(sessionId);
    if (!bounds) return;
    for (let next = from; next <= bounds.last; ) {
      const before = next;
      for await (const place of this.index.read(sessionId, next, PAGE_EVENTS, signal)) {
        if (place.revision > bounds.last || isAfterEnd(target, place)) return;
        next = place.revision + 1;
        yield place;
        if (signal.aborted || cursor.isFull()) return;
      }
      if (next === before) return;
    }
  }

  private async *followed(
    request: LogRequest,
    start: Start,
    cursor: Cursor,
  ): AsyncGenerator<LogPlace> {
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, request.signal]);
    const ending = new Ending(this.index, this.sessions, request, stop);
    let after = start.revision - 1;
    try {
      // A plain read answers sooner than a subscription, and a reader that resumes waits for its first byte.
      for await (const place of this.beginning(request, start)) {
        if (isAfterEnd(request.target, place)) return;
        after = place.revision;
        yield place;
        if (signal.aborted || cursor.isFull()) return;
      }
      ending.begin(signal);
      if (await ending.reached(after)) return;
      const source = {
        stream: logStream(request.sessionId),
        ...(after >= 0 ? { afterRevision: after } : {}),
      };
      for await (const item of this.store.subscribe(source, signal)) {
        if (item.kind !== 'event') continue;
        const place = placeOf(item.event);
        if (isAfterEnd(request.target, place)) return;
        yield place;
        if (signal.aborted || cursor.isFull()) return;
        if (await ending.reached(item.event.revision)) return;
      }
      ending.throwIfFailed();
    } finally {
      stop.abort();
    }
  }

  private async *beginning(
    { sessionId, signal }: LogRequest,
    { revision, within }: Start,
  ): AsyncGenerator<LogPlace> {
    try {
      yield* this.index.read(sessionId, revision, within + BEGINNING_EVENTS, signal);
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
  }

  private async sizeOf({ sessionId, target, offset }: LogRequest, bounds: LogBounds) {
    const final = finalSizeOf(target);
    if (final !== null) return final;
    return offset === 0 ? 0 : this.index.sizeOf(sessionId, target, bounds);
  }

  private async isOver({ sessionId, target }: LogRequest): Promise<boolean> {
    const view = await this.sessions.read(sessionId);
    return !view || isOver(view, target);
  }
}

export interface LogEnd {
  /** Of the first byte that was not delivered. */
  readonly next: number;
  /** Nothing will ever come after it. */
  readonly over: boolean;
}

/** An exec's output stands before its end in the store's order of all events. */
const isAfterEnd = (target: LogTarget, { position }: LogPlace): boolean =>
  target.kind !== 'session' &&
  target.exec.endedPosition !== null &&
  position > target.exec.endedPosition;

function isOver(view: SessionView, target: LogTarget): boolean {
  if (hasEnded(view)) return true;
  if (target.kind === 'session') return false;
  const exec = view.execs.get(target.exec.id);
  return !exec || execHasEnded(exec);
}

/** Learns from the session's stream when nothing more can come, and up to where the log is then read. */
class Ending {
  private last: number | null = null;
  private delivered = -1;
  private fault: unknown = null;

  constructor(
    private readonly index: LogIndex,
    private readonly sessions: SessionReader,
    private readonly request: LogRequest,
    private readonly stop: AbortController,
  ) {}

  begin(signal: AbortSignal): void {
    this.watch(signal).catch((fault) => {
      this.fault = fault;
      this.stop.abort();
    });
  }

  /** True once the log was delivered as far as it goes. */
  async reached(revision: number): Promise<boolean> {
    this.delivered = revision;
    return this.last !== null && revision >= this.last;
  }

  throwIfFailed(): void {
    if (this.fault) throw this.fault;
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const { sessionId, target } = this.request;
    const over = await this.sessions.waitFor(
      sessionId,
      (view) => (isOver(view, target) ? true : undefined),
      signal,
    );
    if (!over) return;
    // Every byte is in the log before the end is in the history: its head now is its end.
    const bounds = await this.index.bounds(sessionId);
    this.last = bounds?.last ?? -1;
    if (this.delivered >= this.last) this.stop.abort();
  }
}
