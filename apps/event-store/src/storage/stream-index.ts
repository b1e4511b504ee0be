import type { Database, Statement } from './sqlite';

/** A stream as the writer knows it, with what the current transaction has added. */
export interface StreamState {
  readonly id: number;
  readonly name: string;
  readonly nameBytes: Buffer;
  /** Revision of the last event, -1 without events. */
  head: number;
  /** Events below are gone for readers. ALL after a delete. */
  truncateBefore: number;
  maxCount: number | null;
  maxAgeS: number | null;
  tombstoned: boolean;
}

/** Larger than any revision: a stream truncated before it is deleted, until something is appended. */
export const ALL = Number.MAX_SAFE_INTEGER;

export const isSoftDeleted = (stream: StreamState): boolean =>
  stream.truncateBefore > stream.head && stream.truncateBefore === ALL;

export const isMetadataStream = (name: string): boolean => name.startsWith('$$');

/** The first revision that readers may see by count and truncation; age is a matter of the read. */
export const firstVisible = (stream: {
  head: number;
  truncateBefore: number;
  maxCount: number | null;
}): number =>
  Math.max(
    stream.truncateBefore,
    stream.maxCount === null ? 0 : stream.head + 1 - stream.maxCount,
    0,
  );

const CACHED_STREAMS = 20_000;

/** Names to states, cached within a bound. */
export class StreamIndex {
  private readonly cache = new Map<string, StreamState>();
  private readonly select: Statement;
  private readonly selectName: Statement;
  private readonly insert: Statement;
  private readonly update: Statement;

  constructor(database: Database) {
    this.select = database.prepare(
      `SELECT id, truncate_before, max_count, max_age_s, tombstoned,
         (SELECT max(revision) FROM events WHERE stream = streams.id) FROM streams WHERE name = ?`,
    );
    this.selectName = database.prepare('SELECT name FROM streams WHERE id = ?');
    this.insert = database.prepare(
      'INSERT INTO streams (name, max_count) VALUES (?, ?) RETURNING id',
    );
    this.update = database.prepare(
      `UPDATE streams SET truncate_before = ?, max_count = ?, max_age_s = ?, tombstoned = ?, scavenge = 1
       WHERE id = ?`,
    );
  }

  find(name: string): StreamState | undefined {
    const cached = this.cache.get(name);
    if (cached) return cached;
    const row = this.select.get(name);
    if (!row) return undefined;
    const [id, truncateBefore, maxCount, maxAgeS, tombstoned, head] = row;
    return this.keep({
      id: Number(id),
      name,
      nameBytes: Buffer.from(name, 'utf8'),
      head: head === null ? -1 : Number(head),
      truncateBefore: Number(truncateBefore),
      maxCount: maxCount === null ? null : Number(maxCount),
      maxAgeS: maxAgeS === null ? null : Number(maxAgeS),
      tombstoned: tombstoned === 1,
    });
  }

  findById(id: number): StreamState | undefined {
    const name = this.selectName.get(id)?.[0];
    return typeof name === 'string' ? this.find(name) : undefined;
  }

  findOrCreate(name: string): StreamState {
    const known = this.find(name);
    if (known) return known;
    // Of a stream's metadata only the last counts.
    const maxCount = isMetadataStream(name) ? 1 : null;
    const id = Number(this.insert.get(name, maxCount)?.[0]);
    return this.keep({
      id,
      name,
      nameBytes: Buffer.from(name, 'utf8'),
      head: -1,
      truncateBefore: 0,
      maxCount,
      maxAgeS: null,
      tombstoned: false,
    });
  }

  /** Stores everything but the head, which the events themselves say, and marks for scavenging. */
  save(stream: StreamState): void {
    const { truncateBefore, maxCount, maxAgeS, tombstoned, id } = stream;
    this.update.run(truncateBefore, maxCount, maxAgeS, tombstoned ? 1 : 0, id);
  }

  /** After a rolled-back transaction nothing in memory is to be trusted. */
  forgetAll(): void {
    this.cache.clear();
  }

  private keep(state: StreamState): StreamState {
    if (this.cache.size >= CACHED_STREAMS) {
      const oldest = this.cache.keys().next();
      if (!oldest.done) this.cache.delete(oldest.value);
    }
    this.cache.set(state.name, state);
    return state;
  }
}
