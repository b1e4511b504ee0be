import { Malformed } from '@vmux/events';
import {
  IndexBehind,
  IndexUnavailable,
  type SessionFilter,
  type SessionIndex,
  type SessionPage,
  type SessionSummary,
  type SessionUsage,
} from '../application/session-index';
import { HeadWatch } from './head-watch';
import type { RowStore } from './row-store';
import { NO_USAGE, type SessionRow, summaryOf } from './session-row';

const ROWS_PER_READ = 200;
/** A page that would look at more is short, and its cursor goes on from there. */
const MAX_ROWS_PER_PAGE = 5_000;
const MAX_LIMIT = 1_000;

export interface OwnerUsage extends SessionUsage {
  readonly sessions: number;
  readonly execs: number;
}

/** Lists from rows that follow the histories. */
export class ProjectedIndex implements SessionIndex {
  private readonly watch: HeadWatch;

  constructor(
    private readonly rows: RowStore,
    private readonly waitMs: number,
  ) {
    this.watch = new HeadWatch(rows);
  }

  async list(
    filter: SessionFilter,
    page: { readonly cursor?: string; readonly limit: number; readonly after?: bigint },
  ): Promise<SessionPage> {
    const limit = Math.min(Math.max(1, page.limit), MAX_LIMIT);
    let from = page.cursor === undefined ? null : positionOf(page.cursor);
    await this.readable(page.after);
    const found: SessionRow[] = [];
    const perRead = Math.min(ROWS_PER_READ, isFiltered(filter) ? ROWS_PER_READ : limit + 1);
    for (let seen = 0; seen < MAX_ROWS_PER_PAGE; ) {
      const rows = await this.rows.before(filter.owner, from, perRead);
      for (const row of rows) {
        if (!matches(row, filter)) continue;
        if (found.length === limit) return pageOf(found, found.at(-1)?.createdPosition ?? null);
        found.push(row);
      }
      const last = rows.at(-1);
      if (!last || rows.length < perRead) return pageOf(found, null);
      from = BigInt(last.createdPosition);
      seen += rows.length;
    }
    return pageOf(found, String(from));
  }

  async live(owner: string): Promise<readonly SessionSummary[]> {
    await this.readable();
    return (await this.rows.live(owner)).map(summaryOf);
  }

  /** Over the sessions that exist: with a session its usage is forgotten. */
  async usage(owner: string, now: number): Promise<OwnerUsage> {
    await this.readable();
    let sum: OwnerUsage = { ...NO_USAGE, sessions: 0, execs: 0 };
    for (let from: bigint | null = null; ; ) {
      const rows: readonly SessionRow[] = await this.rows.before(owner, from, ROWS_PER_READ);
      for (const row of rows) sum = plus(sum, row, now);
      const last = rows.at(-1);
      if (!last || rows.length < ROWS_PER_READ) return sum;
      from = BigInt(last.createdPosition);
    }
  }

  /** Waits a moment for rows that are fit to be shown and have the position. */
  private async readable(after: bigint | null = null): Promise<void> {
    const { complete, position } = await this.watch.reached(after, this.waitMs);
    if (!complete) throw new IndexUnavailable('it is being built');
    if (after !== null && (position === null || position < after)) throw new IndexBehind(after);
  }
}

const pageOf = (rows: readonly SessionRow[], cursor: string | null): SessionPage => ({
  sessions: rows.map(summaryOf),
  cursor,
});

/** The cursor is the place of the last row that was shown: what is inserted later comes before it. */
function positionOf(cursor: string): bigint {
  if (!/^\d{1,20}$/.test(cursor)) throw new Malformed('cursor', 'one that a list has returned');
  return BigInt(cursor);
}

const isFiltered = ({ owner: _, ...rest }: SessionFilter): boolean =>
  Object.values(rest).some((wanted) => wanted !== undefined);

function matches(row: SessionRow, { statuses, provider, name, labels }: SessionFilter): boolean {
  return (
    (statuses === undefined || statuses.includes(row.status)) &&
    (provider === undefined || row.provider === provider) &&
    (name === undefined || row.name === name) &&
    Object.entries(labels ?? {}).every(
      ([label, value]) => Object.hasOwn(row.labels, label) && row.labels[label] === value,
    )
  );
}

const plus = (sum: OwnerUsage, { usage, execs, sandbox }: SessionRow, now: number): OwnerUsage => ({
  sessions: sum.sessions + 1,
  execs: sum.execs + execs.issued,
  cpuMs: sum.cpuMs + usage.cpuMs,
  peakMemoryBytes: Math.max(sum.peakMemoryBytes, usage.peakMemoryBytes),
  readBytes: sum.readBytes + usage.readBytes,
  writtenBytes: sum.writtenBytes + usage.writtenBytes,
  outputBytes: sum.outputBytes + usage.outputBytes,
  sandboxMs: sum.sandboxMs + usage.sandboxMs + (sandbox ? Math.max(0, now - sandbox.startedAt) : 0),
});
