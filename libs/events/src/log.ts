import type { Sizes, Stream } from './values';

/** The most that one output event may carry. */
export const MAX_CHUNK_BYTES = 64 * 1024;
/** A `LogMark` stands at every revision divisible by this. */
export const LOG_MARK_EVERY = 64;

export const sessionStream = (sessionId: string): string => `session-${sessionId}`;
export const logStream = (sessionId: string): string => `log-${sessionId}`;
export const snapshotStream = (sessionId: string): string => `snapshot-${sessionId}`;
/** What snapshots remember of keys. */
export const keysStream = (sessionId: string): string => `keys-${sessionId}`;
/** What gateways folded of the history: a cache as well. */
export const viewStream = (sessionId: string): string => `view-${sessionId}`;

/** The data of a chunk are the raw bytes; this is its metadata. */
export interface LogChunkMetadata {
  readonly execId: string;
  readonly stream: Stream;
  /** Of the first byte, in that exec's own stream. */
  readonly offset: number;
  /** Of the first byte, in the session's merged output. */
  readonly sessionOffset: number;
  /** The supervisor's time. */
  readonly at: number;
  /** Revision of the exec's `ExecIssued` in the session's stream. */
  readonly issued: number;
}

export interface LogChunk extends LogChunkMetadata {
  readonly type: 'LogChunk';
  readonly bytes: Uint8Array;
}

export interface StreamCursor {
  /** Of the next byte of each of the exec's streams. */
  readonly next: Sizes;
  /** One more than the number of the last terminal resize. */
  readonly resizes: number;
  readonly issued: number;
}

/**
 * The fence, the tail after a restart and the index for finding an offset. Whoever has the last mark and
 * the events after it has the log's whole state.
 */
export interface LogMark {
  readonly type: 'LogMark';
  readonly epoch: number;
  readonly instance: string;
  readonly closed: boolean;
  readonly sessionOffset: number;
  readonly streams: Readonly<Record<string, StreamCursor>>;
  /** Marks to truncate at, oldest first, a sixteenth of the budget apart. */
  readonly segments: readonly LogSegment[];
  /** The first byte of the merged output that still exists. */
  readonly firstOffset: number;
  /** The session's revision by which streams of ended execs were left out. */
  readonly sessionRevision: number;
  readonly at: number;
}

export interface LogSegment {
  readonly revision: number;
  readonly sessionOffset: number;
}

/** Bytes that no longer exist anywhere. Both offsets move on as if they had been there. */
export interface LogGap {
  readonly type: 'LogGap';
  readonly execId: string;
  readonly stream: Stream;
  readonly from: number;
  readonly to: number;
  readonly sessionOffset: number;
  readonly reason: string;
  readonly at: number;
  readonly issued: number;
}

/** Everything before `revision` is dropped to keep the budget; `revision` is a `LogMark`. */
export interface LogTruncated {
  readonly type: 'LogTruncated';
  readonly revision: number;
  readonly firstOffset: number;
  readonly droppedBytes: number;
  readonly at: number;
}

export interface TerminalResized {
  readonly type: 'TerminalResized';
  readonly execId: string;
  /** Grows with an exec's resizes, so that a repeat is recognised; the supervisor's time in microseconds. */
  readonly number: number;
  /** Of the terminal's output when it was resized. */
  readonly offset: number;
  readonly sessionOffset: number;
  readonly cols: number;
  readonly rows: number;
  readonly at: number;
  readonly issued: number;
}

export type LogEvent = LogChunk | LogMark | LogGap | LogTruncated | TerminalResized;
export type LogEventType = LogEvent['type'];
