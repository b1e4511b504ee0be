import { DurableObject } from 'cloudflare:workers';
import type { ObjectState } from './platform';
import { type Answer, answer, type Limits, refuse, type SandboxName } from './wire';

/** A sandbox that was asked for and is not destroyed. */
export interface Entry {
  readonly name: SandboxName;
  readonly binding: string;
  readonly runner: string;
  readonly limits: Limits;
  readonly createdAtMs: number;
}

export interface Admission {
  readonly nonce: string;
  readonly voidAtMs: number;
  readonly nowMs: number;
  /** Of the sandbox that is asked for, which is not forgotten then. */
  readonly name: SandboxName | null;
}

export interface Admitted {
  readonly isFresh: boolean;
  readonly entry: Entry | null;
}

interface Row extends Record<string, string | number | null> {
  session: string;
  epoch: number;
  instance: string;
  binding: string;
  runner: string;
  limits: string;
  created_ms: number;
  destroyed_ms: number | null;
}

/** How long a destroyed sandbox's name and a session's newest epoch are remembered. */
const rememberedMs = 7 * 24 * 3600 * 1000;

/**
 * Knows every sandbox before anything of it exists, so that none can leak unseen; takes each signature once
 * and no create for an epoch that a session has left behind.
 */
export class Registry extends DurableObject {
  constructor(ctx: ObjectState, env: unknown) {
    super(ctx, env);
    this.sql(`CREATE TABLE IF NOT EXISTS sandboxes (
      session TEXT, epoch INTEGER, instance TEXT, binding TEXT, runner TEXT, limits TEXT,
      created_ms INTEGER, touched_ms INTEGER, destroyed_ms INTEGER,
      PRIMARY KEY (session, epoch, instance))`);
    this.sql('CREATE TABLE IF NOT EXISTS nonces (nonce TEXT PRIMARY KEY, void_ms INTEGER)');
    this.sql('CREATE INDEX IF NOT EXISTS void ON nonces (void_ms)');
    this.sql(
      'CREATE TABLE IF NOT EXISTS fences (session TEXT PRIMARY KEY, epoch INTEGER, at_ms INTEGER)',
    );
  }

  /** Takes the number of a request, unless it was taken before, and says what is known of its sandbox. */
  async admit({ nonce, voidAtMs, nowMs, name }: Admission): Promise<Admitted> {
    this.sql('DELETE FROM nonces WHERE void_ms < ?', nowMs);
    const known = this.sql('SELECT nonce FROM nonces WHERE nonce = ?', nonce);
    if (known.length > 0) return { isFresh: false, entry: null };
    this.sql('INSERT INTO nonces VALUES (?, ?)', nonce, voidAtMs);
    if (name) this.change(name, 'touched_ms = ?', nowMs);
    return { isFresh: true, entry: name ? await this.find(name) : null };
  }

  async begin(entry: Entry): Promise<Answer<null>> {
    const { name, binding, runner, limits, createdAtMs } = entry;
    const { sessionId, epoch, instance } = name;
    const known = this.row(name);
    if (known && known.destroyed_ms !== null)
      return refuse('sandbox_lost', 'this sandbox was destroyed: ask for another instance');
    if (known) return refuse('exists', 'the sandbox exists already');
    const fence = this.sql<{ epoch: number }>(
      'SELECT epoch FROM fences WHERE session = ?',
      sessionId,
    )[0];
    if (fence && fence.epoch > epoch)
      return refuse('stale_epoch', `the session has reached epoch ${fence.epoch}`);
    this.sql('INSERT OR REPLACE INTO fences VALUES (?, ?, ?)', sessionId, epoch, createdAtMs);
    this.sql(
      'INSERT INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)',
      sessionId,
      epoch,
      instance,
      binding,
      runner,
      JSON.stringify(limits),
      createdAtMs,
      createdAtMs,
    );
    return answer(null);
  }

  async find(name: SandboxName): Promise<Entry | null> {
    const row = this.row(name);
    return row && row.destroyed_ms === null ? entryOf(row) : null;
  }

  async list(runner: string): Promise<Entry[]> {
    return this.sql<Row>(
      'SELECT * FROM sandboxes WHERE destroyed_ms IS NULL AND runner = ?',
      runner,
    ).map(entryOf);
  }

  async handOver(name: SandboxName, runner: string): Promise<void> {
    this.change(name, 'runner = ?', runner);
  }

  async touch(name: SandboxName, nowMs: number): Promise<void> {
    this.change(name, 'touched_ms = ?', nowMs);
  }

  /** Also of one that never was: a create that comes later than its own destroy makes nothing. */
  async markDestroyed(name: SandboxName, nowMs: number): Promise<void> {
    const { sessionId, epoch, instance } = name;
    if (!this.row(name))
      this.sql(
        `INSERT INTO sandboxes VALUES (?, ?, ?, '', '', '{}', ?, ?, NULL)`,
        sessionId,
        epoch,
        instance,
        nowMs,
        nowMs,
      );
    this.change(name, 'destroyed_ms = ?', nowMs);
    this.sql('DELETE FROM sandboxes WHERE destroyed_ms < ?', nowMs - rememberedMs);
    this.sql('DELETE FROM fences WHERE at_ms < ?', nowMs - rememberedMs);
  }

  /** Sandboxes that nobody has asked for since then, the most forgotten first. */
  async untouchedSince(beforeMs: number, most: number): Promise<Entry[]> {
    return this.sql<Row>(
      'SELECT * FROM sandboxes WHERE destroyed_ms IS NULL AND touched_ms < ? ORDER BY touched_ms LIMIT ?',
      beforeMs,
      most,
    ).map(entryOf);
  }

  private row(name: SandboxName): Row | undefined {
    const { sessionId, epoch, instance } = name;
    const query = 'SELECT * FROM sandboxes WHERE session = ? AND epoch = ? AND instance = ?';
    return this.sql<Row>(query, sessionId, epoch, instance)[0];
  }

  private change(name: SandboxName, what: string, value: string | number): void {
    const { sessionId, epoch, instance } = name;
    const query = `UPDATE sandboxes SET ${what} WHERE session = ? AND epoch = ? AND instance = ?`;
    this.sql(query, value, sessionId, epoch, instance);
  }

  private sql<R extends Record<string, string | number | null>>(
    query: string,
    ...values: readonly (string | number | null)[]
  ): R[] {
    return this.ctx.storage.sql.exec<R>(query, ...values).toArray();
  }
}

const entryOf = (row: Row): Entry => ({
  name: { sessionId: row.session, epoch: row.epoch, instance: row.instance },
  binding: row.binding,
  runner: row.runner,
  limits: JSON.parse(row.limits),
  createdAtMs: row.created_ms,
});
