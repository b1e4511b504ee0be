import type { LogChunk, LogEvent, LogGap, Stream } from '@vmux/events';
import type { ExecView } from './exec-view';

/**
 * Whose output is read, and what its offsets count: the session's merged output (all of it, or what one
 * exec wrote of it), or one stream of one exec.
 */
export type LogTarget =
  | { readonly kind: 'session' }
  | { readonly kind: 'exec'; readonly exec: ExecView }
  | { readonly kind: 'stream'; readonly exec: ExecView; readonly stream: Stream };

/** A range of the target's offsets, that bytes fill or that a gap leaves empty. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** Where a chunk or a gap lies in the target's offsets; null when it is not the target's. */
export function spanOf(target: LogTarget, event: LogChunk | LogGap): Span | null {
  const length = event.type === 'LogChunk' ? event.bytes.length : event.to - event.from;
  if (target.kind !== 'stream')
    return { from: event.sessionOffset, to: event.sessionOffset + length };
  if (event.execId !== target.exec.id || event.stream !== target.stream) return null;
  const from = event.type === 'LogChunk' ? event.offset : event.from;
  return { from, to: from + length };
}

/** Whether the reader sees it: the merged offsets of one exec also count what the others write. */
export const isShown = (target: LogTarget, { execId }: { readonly execId: string }): boolean =>
  target.kind === 'session' || target.exec.id === execId;

/** How much the target has once its exec has ended; null while that is not known. */
export const finalSizeOf = (target: LogTarget): number | null =>
  target.kind === 'stream' ? (target.exec.sizes?.[target.stream] ?? null) : null;

/** The first offset after the event, in the session's merged output; null when the event does not say. */
export function sessionOffsetAfter(event: LogEvent): number | null {
  switch (event.type) {
    case 'LogChunk':
      return event.sessionOffset + event.bytes.length;
    case 'LogGap':
      return event.sessionOffset + event.to - event.from;
    case 'LogMark':
    case 'TerminalResized':
      return event.sessionOffset;
    case 'LogTruncated':
      return null;
  }
}

/** The offset that the event stands at, in the session's merged output; 0 when the event does not say. */
export const sessionOffsetBefore = (event: LogEvent): number =>
  event.type === 'LogTruncated' ? 0 : event.sessionOffset;
