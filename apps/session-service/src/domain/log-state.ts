import type { LogEvent, LogSegment, Sizes, StreamCursor } from '@vmux/events';
import { NO_OUTPUT } from '@vmux/events';

/** The log of a session, as far as it has to be known to go on with it. */
export interface LogState {
  readonly revision: number;
  /** 0 until the first epoch opens it. */
  readonly epoch: number;
  readonly instance: string;
  readonly closed: boolean;
  readonly sessionOffset: number;
  readonly streams: Readonly<Record<string, StreamCursor>>;
  readonly segments: readonly LogSegment[];
  readonly firstOffset: number;
  /** The session's revision that the last mark was made with. */
  readonly sessionRevision: number;
}

export const EMPTY_LOG: LogState = {
  revision: -1,
  epoch: 0,
  instance: '',
  closed: true,
  sessionOffset: 0,
  streams: {},
  segments: [],
  firstOffset: 0,
  sessionRevision: -1,
};

export interface RecordedLogEvent {
  readonly event: LogEvent;
  readonly revision: number;
}

/** How much of an exec's output is durable. */
export const sizesIn = (log: LogState, execId: string): Sizes =>
  log.streams[execId]?.next ?? NO_OUTPUT;

/** Never throws. A mark says all that there is to know, so a fold may begin at any of them. */
export function evolveLog(log: LogState, { event, revision }: RecordedLogEvent): LogState {
  switch (event.type) {
    case 'LogMark': {
      const { type: _, at: __, ...mark } = event;
      return { ...mark, revision };
    }
    case 'LogChunk': {
      const { execId, stream, offset, sessionOffset, bytes, issued } = event;
      const next = advanced(log, execId, issued, { [stream]: offset + bytes.length });
      return { ...next, revision, sessionOffset: sessionOffset + bytes.length };
    }
    case 'LogGap': {
      const { execId, stream, from, to, sessionOffset, issued } = event;
      const next = advanced(log, execId, issued, { [stream]: to });
      return { ...next, revision, sessionOffset: sessionOffset + to - from };
    }
    case 'TerminalResized': {
      const next = advanced(log, event.execId, event.issued, {});
      const cursor = cursorIn(next, event.execId, event.issued);
      const streams = { ...next.streams, [event.execId]: { ...cursor, resizes: event.number + 1 } };
      return { ...next, revision, streams };
    }
    case 'LogTruncated':
      return {
        ...log,
        revision,
        firstOffset: event.firstOffset,
        segments: log.segments.filter((segment) => segment.revision >= event.revision),
      };
  }
}

/** The events from the last `LogMark` on, or all there are. */
export const foldLog = (tail: Iterable<RecordedLogEvent>): LogState => {
  let log = EMPTY_LOG;
  for (const recorded of tail) log = evolveLog(log, recorded);
  return log;
};

export const cursorIn = (log: LogState, execId: string, issued: number): StreamCursor =>
  log.streams[execId] ?? { next: NO_OUTPUT, resizes: 0, issued };

function advanced(log: LogState, execId: string, issued: number, change: Partial<Sizes>): LogState {
  const cursor = cursorIn(log, execId, issued);
  const next = { ...cursor, next: { ...cursor.next, ...change } };
  return { ...log, streams: { ...log.streams, [execId]: next } };
}
