import type { LogChunk, Stream } from '@vmux/events';
import type { LogPlace } from './log-index';
import { finalSizeOf, isShown, type LogTarget, spanOf } from './log-target';

export type LogItem =
  | {
      readonly kind: 'bytes';
      readonly execId: string;
      readonly stream: Stream;
      /** In the target's offsets, of the first byte. */
      readonly offset: number;
      readonly at: number;
      readonly bytes: Uint8Array;
      readonly revision: number;
    }
  | {
      readonly kind: 'gap';
      readonly from: number;
      readonly to: number;
      readonly reason: string;
      readonly execId: string | null;
      readonly stream: Stream | null;
      readonly revision: number;
    }
  | {
      readonly kind: 'resize';
      readonly execId: string;
      readonly offset: number;
      readonly cols: number;
      readonly rows: number;
      readonly revision: number;
    };

/** Turns log events into items from one offset on, and notices what is missing between them. */
export class Cursor {
  constructor(
    private readonly target: LogTarget,
    public offset: number,
  ) {}

  /** The next thing of the target comes after bytes that should be there. */
  isAhead({ event }: LogPlace): boolean {
    if (event?.type !== 'LogChunk' && event?.type !== 'LogGap') return false;
    const span = spanOf(this.target, event);
    return span !== null && span.from > this.offset;
  }

  isFull(): boolean {
    const final = finalSizeOf(this.target);
    return final !== null && this.offset >= final;
  }

  *take({ event, revision }: LogPlace): Generator<LogItem> {
    if (event?.type === 'TerminalResized') {
      const { execId, offset, sessionOffset, cols, rows } = event;
      const at = this.target.kind === 'stream' ? offset : sessionOffset;
      const isShownHere = this.target.kind !== 'stream' || this.target.stream === 'pty';
      if (isShownHere && isShown(this.target, event) && at >= this.offset)
        yield { kind: 'resize', execId, offset: at, cols, rows, revision };
      return;
    }
    if (event?.type !== 'LogChunk' && event?.type !== 'LogGap') return;
    const span = spanOf(this.target, event);
    if (!span || span.to <= this.offset) return;
    if (span.from > this.offset) yield this.missing(span.from, revision);
    const from = this.offset;
    this.offset = span.to;
    if (!isShown(this.target, event)) return;
    if (event.type === 'LogGap') {
      const { execId, stream, reason } = event;
      yield { kind: 'gap', from, to: span.to, reason, execId, stream, revision };
    } else {
      yield bytesFrom(event, from, from - span.from, revision);
    }
  }

  /** Dropped to keep the log's budget: only that removes bytes without a `LogGap`. */
  missing(to: number, revision = 0): LogItem {
    const from = this.offset;
    this.offset = to;
    const execId = this.target.kind === 'session' ? null : this.target.exec.id;
    const stream = this.target.kind === 'stream' ? this.target.stream : null;
    return { kind: 'gap', from, to, reason: 'truncated', execId, stream, revision };
  }
}

/** All that the target has, if these events are all that can have it; null when something is missing. */
export function wholeOf(target: LogTarget, places: readonly LogPlace[]): readonly LogItem[] | null {
  const cursor = new Cursor(target, 0);
  const items: LogItem[] = [];
  for (const place of places) {
    if (cursor.isAhead(place)) return null;
    items.push(...cursor.take(place));
  }
  return cursor.isFull() ? items : null;
}

const bytesFrom = (chunk: LogChunk, offset: number, skip: number, revision: number): LogItem => ({
  kind: 'bytes',
  execId: chunk.execId,
  stream: chunk.stream,
  offset,
  at: chunk.at,
  bytes: chunk.bytes.subarray(skip),
  revision,
});

/** Whether the reader's last event is this one: it touches the offset. */
export function reaches({ event }: LogPlace, target: LogTarget, offset: number): boolean {
  if (event?.type !== 'LogChunk' && event?.type !== 'LogGap') return false;
  const span = spanOf(target, event);
  return span !== null && span.from <= offset && offset <= span.to;
}
