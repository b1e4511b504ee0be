import type { Database, Statement } from './sqlite';

const BATCH_EVENTS = 256;

/**
 * Removes, a bounded batch at a time, what streams no longer show: events before `$tb`, beyond
 * `$maxCount`, older than `$maxAge`, and all of a deleted stream. A stream always keeps its last event:
 * its numbering goes on from there.
 */
export class Scavenger {
  private readonly pending: Statement;
  private readonly remove: Statement;
  private readonly finished: Statement;
  private readonly aged: Statement;
  private mayHaveWork = true;
  private ageIsDue = true;

  constructor(private readonly database: Database) {
    this.pending = database.prepare(
      `SELECT id, truncate_before, max_count, max_age_s,
         (SELECT max(revision) FROM events WHERE stream = streams.id)
       FROM streams WHERE scavenge = 1 LIMIT 1`,
    );
    this.remove = database.prepare(
      `DELETE FROM events WHERE position IN (
         SELECT position FROM events
         WHERE stream = ?1 AND revision < ?3 AND (revision < ?2 OR created_ms < ?4)
         ORDER BY revision LIMIT ${BATCH_EVENTS})`,
    );
    this.finished = database.prepare('UPDATE streams SET scavenge = 0 WHERE id = ?');
    this.aged = database.prepare(
      'UPDATE streams SET scavenge = 1 WHERE max_age_s IS NOT NULL AND scavenge = 0',
    );
  }

  /** Something may have become removable. */
  notice(): void {
    this.mayHaveWork = true;
  }

  /** Streams that limit age are looked at again in the next step; to be called now and then. */
  noticeAge(): void {
    this.ageIsDue = true;
    this.mayHaveWork = true;
  }

  /** One transaction. Lost in a crash it is repeated: removing needs no sync of its own. */
  step(): number {
    if (!this.mayHaveWork) return 0;
    if (this.ageIsDue) this.aged.run();
    this.ageIsDue = false;
    const row = this.pending.get();
    if (!row) {
      this.mayHaveWork = false;
      return 0;
    }
    const [id, truncateBefore, maxCount, maxAgeS, lastRevision] = row.map((value) =>
      value === null ? null : Number(value),
    );
    const head = lastRevision ?? -1;
    const byCount = maxCount === null || maxCount === undefined ? 0 : head + 1 - maxCount;
    const before = Math.max(truncateBefore ?? 0, byCount);
    const notBeforeMs = maxAgeS === null || maxAgeS === undefined ? 0 : Date.now() - maxAgeS * 1000;
    this.database.exec('BEGIN IMMEDIATE');
    try {
      const removed = this.remove.run(id ?? 0, before, head, notBeforeMs);
      if (removed < BATCH_EVENTS) this.finished.run(id ?? 0);
      this.database.exec('COMMIT');
      return removed;
    } catch (error) {
      if (this.database.inTransaction()) this.database.exec('ROLLBACK');
      throw error;
    }
  }
}
