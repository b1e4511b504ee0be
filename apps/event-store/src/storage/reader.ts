import type { Database, Row, Statement } from './sqlite';
import { ALL, firstVisible } from './stream-index';

/** A stream as readers may see it. */
export interface ReadableStream {
  readonly id: number;
  /** Revision of the last event. */
  readonly head: number;
  readonly firstRevision: number;
  /** Older events have expired. */
  readonly notBeforeMs: number;
  readonly tombstoned: boolean;
  /** False after a delete. */
  readonly exists: boolean;
}

export interface StoredEvent {
  readonly position: number;
  readonly revision: number;
  readonly frame: Uint8Array;
}

/** Enough of an event to decide whether a filter wants it. */
export interface EventHeader {
  readonly position: number;
  readonly stream: string;
  readonly type: string;
}

export type Direction = 'forwards' | 'backwards';

const BATCH_EVENTS = 512;
const BATCH_BYTES = 256 * 1024;

/**
 * Reads what is durable and nothing else, on a connection of its own: the committer pins its snapshot
 * from before a COMMIT until that commit is synced. Every method returns a bounded batch.
 */
export class EventReader {
  private readonly begin: Statement;
  private readonly commit: Statement;
  private readonly stream: Statement;
  private readonly tail: Statement;
  private readonly frameAt: Statement;
  private readonly ofStream: Record<Direction, Statement>;
  private readonly ofAll: Record<Direction, Statement>;
  private readonly headers: Record<Direction, Statement>;

  constructor(database: Database) {
    this.begin = database.prepare('BEGIN');
    this.commit = database.prepare('COMMIT');
    this.stream = database.prepare(
      `SELECT id, truncate_before, max_count, max_age_s, tombstoned,
         (SELECT max(revision) FROM events WHERE stream = streams.id) FROM streams WHERE name = ?`,
    );
    this.tail = database.prepare('SELECT max(position) FROM events');
    this.frameAt = database.prepare('SELECT frame FROM events WHERE position = ?');
    // One bound at either end: of two lower ones SQLite seeks the first and walks to the second.
    const ofStream = (order: string) =>
      database.prepare(
        `SELECT position, revision, frame FROM events
         WHERE stream = ? AND revision BETWEEN ? AND ? AND created_ms >= ? ORDER BY revision ${order}`,
      );
    this.ofStream = { forwards: ofStream('ASC'), backwards: ofStream('DESC') };
    const ofAll = (range: string) =>
      database.prepare(`SELECT position, revision, frame FROM events WHERE position ${range}`);
    this.ofAll = {
      forwards: ofAll('>= ? ORDER BY position'),
      backwards: ofAll('<= ? ORDER BY position DESC'),
    };
    const headers = (range: string) =>
      database.prepare(
        `SELECT position, name, type FROM events JOIN streams ON streams.id = stream
         WHERE position ${range} LIMIT ?`,
      );
    this.headers = {
      forwards: headers('>= ? ORDER BY position'),
      backwards: headers('<= ? ORDER BY position DESC'),
    };
  }

  /** Keeps showing the state of now until `unpin`. */
  pin(): void {
    this.begin.run();
    this.tail.get();
  }

  unpin(): void {
    this.commit.run();
  }

  findStream(name: string): ReadableStream | undefined {
    const row = this.stream.get(name);
    if (!row || row[5] === null) return undefined;
    const [id, truncateBefore, maxCount, maxAgeS, tombstoned, lastRevision] = row.map(toNumber);
    const head = lastRevision ?? -1;
    const firstRevision = firstVisible({
      head,
      truncateBefore: truncateBefore ?? 0,
      maxCount: maxCount ?? null,
    });
    return {
      id: id ?? 0,
      head,
      firstRevision,
      notBeforeMs: maxAgeS === null || maxAgeS === undefined ? 0 : Date.now() - maxAgeS * 1000,
      tombstoned: tombstoned === 1,
      exists: truncateBefore !== ALL,
    };
  }

  /** Position of the last event, 0 without events. */
  lastPosition(): number {
    return Number(this.tail.get()?.[0] ?? 0);
  }

  /** From `revision` on, inclusive. */
  readStream(
    stream: ReadableStream,
    direction: Direction,
    revision: number,
    limit: number,
  ): StoredEvent[] {
    const { id, firstRevision, notBeforeMs } = stream;
    const [from, to] =
      direction === 'forwards'
        ? [Math.max(revision, firstRevision), Number.MAX_SAFE_INTEGER]
        : [firstRevision, revision];
    return batchOf(this.ofStream[direction].iterate(id, from, to, notBeforeMs), limit);
  }

  /** From `position` on, inclusive. */
  readAll(direction: Direction, position: number, limit: number): StoredEvent[] {
    return batchOf(this.ofAll[direction].iterate(position), limit);
  }

  /** What a filter decides on, from `position` on, inclusive. */
  readHeaders(direction: Direction, position: number, limit: number): EventHeader[] {
    return this.headers[direction].all(position, limit).map(([at, stream, type]) => ({
      position: Number(at),
      stream: String(stream),
      type: String(type),
    }));
  }

  frame(position: number): Uint8Array | undefined {
    const frame = this.frameAt.get(position)?.[0];
    return frame instanceof Uint8Array ? frame : undefined;
  }
}

function batchOf(rows: Iterable<Row>, limit: number): StoredEvent[] {
  const batch: StoredEvent[] = [];
  let bytes = 0;
  for (const [position, revision, frame] of rows) {
    if (!(frame instanceof Uint8Array)) throw new Error('an event is stored without its bytes');
    batch.push({ position: Number(position), revision: Number(revision), frame });
    bytes += frame.length;
    if (batch.length >= Math.min(limit, BATCH_EVENTS) || bytes >= BATCH_BYTES) break;
  }
  return batch;
}

const toNumber = (value: unknown): number | null => (value === null ? null : Number(value));
