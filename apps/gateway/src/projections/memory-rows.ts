import { type Change, type Head, MAX_LIVE, NOTHING, type RowStore } from './row-store';
import { RowsFile } from './rows-file';
import { isLive, type SessionRow } from './session-row';

/** Saving takes at most one part in so many of the time, however many rows there are. */
const SAVING_SHARE = 30;

interface OwnerRows {
  /** In order of creation. */
  readonly rows: SessionRow[];
  readonly live: Map<string, SessionRow>;
}

export interface MemoryRowsOptions {
  /** Where they are kept over a restart; null: nowhere. */
  readonly file: string | null;
  readonly onFault: (fault: unknown) => void;
  readonly saveEveryMs?: number;
}

/** Rows in this process, and from time to time in a file, from which the next process goes on. */
export class MemoryRows implements RowStore {
  private current: Head = NOTHING;
  private byId = new Map<string, SessionRow>();
  private byOwner = new Map<string, OwnerRows>();
  private readonly file: RowsFile | null;
  private readonly timer: NodeJS.Timeout | null;
  private readonly loaded: Promise<void>;
  private saved: Head = NOTHING;
  private saveAgainAt = 0;
  private saving: Promise<void> = Promise.resolve();

  constructor(private readonly options: MemoryRowsOptions) {
    this.file = options.file === null ? null : new RowsFile(options.file);
    this.loaded = this.load();
    const everyMs = options.saveEveryMs ?? 10_000;
    this.timer =
      this.file &&
      setInterval(() => {
        if (performance.now() >= this.saveAgainAt) this.saveNow();
      }, everyMs).unref();
  }

  async head(): Promise<Head> {
    await this.loaded;
    return this.current;
  }

  async rows(ids: readonly string[]): Promise<ReadonlyMap<string, SessionRow>> {
    const found = new Map<string, SessionRow>();
    for (const id of ids) {
      const row = this.byId.get(id);
      if (row) found.set(id, row);
    }
    return found;
  }

  async commit({ from, to, rows }: Change): Promise<boolean> {
    if (from.position !== this.current.position) return false;
    for (const [id, row] of rows) this.put(id, row);
    this.current = to;
    return true;
  }

  async before(
    owner: string,
    position: bigint | null,
    count: number,
  ): Promise<readonly SessionRow[]> {
    const rows = this.byOwner.get(owner)?.rows ?? [];
    const end = position === null ? rows.length : placeOf(rows, position);
    return rows.slice(Math.max(0, end - count), end).reverse();
  }

  async live(owner: string): Promise<readonly SessionRow[]> {
    const live = [...(this.byOwner.get(owner)?.live.values() ?? [])];
    return live.sort((a, b) => compare(b, a)).slice(0, MAX_LIVE);
  }

  async clear(): Promise<void> {
    this.byId = new Map();
    this.byOwner = new Map();
    this.current = NOTHING;
  }

  async claim(): Promise<boolean> {
    return true;
  }

  async close(): Promise<void> {
    if (this.timer) clearInterval(this.timer);
    await this.loaded;
    this.saveNow();
    await this.saving;
  }

  private async load(): Promise<void> {
    try {
      const stored = await this.file?.load();
      if (!stored) return;
      for (const row of stored.rows) this.put(row.id, row);
      this.current = stored.head;
      this.saved = stored.head;
    } catch (fault) {
      this.options.onFault(fault);
      await this.clear();
    }
  }

  /** One at a time; what is lost with the process is read from the histories again. */
  private saveNow(): void {
    const { file } = this;
    if (!file) return;
    this.saving = this.saving
      .then(async () => {
        const head = this.current;
        if (!head.complete || head.position === this.saved.position) return;
        const begunAt = performance.now();
        await file.save(head, [...this.byId.values()]);
        this.saved = head;
        this.saveAgainAt = performance.now() + (performance.now() - begunAt) * SAVING_SHARE;
      })
      .catch(this.options.onFault);
  }

  private put(id: string, row: SessionRow | null): void {
    const known = this.byId.get(id);
    if (!row) {
      if (known) this.remove(known);
      return;
    }
    this.byId.set(id, row);
    const owned = this.byOwner.get(row.owner) ?? { rows: [], live: new Map() };
    this.byOwner.set(row.owner, owned);
    owned.rows.splice(placeOf(owned.rows, BigInt(row.createdPosition)), known ? 1 : 0, row);
    if (isLive(row)) owned.live.set(id, row);
    else owned.live.delete(id);
  }

  private remove(row: SessionRow): void {
    this.byId.delete(row.id);
    const owned = this.byOwner.get(row.owner);
    if (!owned) return;
    owned.rows.splice(placeOf(owned.rows, BigInt(row.createdPosition)), 1);
    owned.live.delete(row.id);
    if (owned.rows.length === 0) this.byOwner.delete(row.owner);
  }
}

function compare(a: SessionRow, b: SessionRow): number {
  const [left, right] = [BigInt(a.createdPosition), BigInt(b.createdPosition)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Of the first row that was not created before the position. */
function placeOf(rows: readonly SessionRow[], position: bigint): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const row = rows[middle];
    if (row && BigInt(row.createdPosition) < position) low = middle + 1;
    else high = middle;
  }
  return low;
}
