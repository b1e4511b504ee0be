import type { SessionRow } from './session-row';

/** How far the rows follow the histories. */
export interface Head {
  /** Everything up to here is in the rows; null: nothing is. */
  readonly position: bigint | null;
  /** Once the rows have had everything that there was, they are fit to be shown. */
  readonly complete: boolean;
  /** The last event in the rows: tells whether they are of this event store. */
  readonly last: { readonly stream: string; readonly revision: number; readonly id: string } | null;
}

export const NOTHING: Head = { position: null, complete: false, last: null };

export interface Change {
  readonly from: Head;
  readonly to: Head;
  /** Null removes the row. */
  readonly rows: ReadonlyMap<string, SessionRow | null>;
}

/** Where rows are kept. Every method throws `IndexUnavailable` when that place cannot be reached. */
export interface RowStore {
  head(): Promise<Head>;
  rows(ids: readonly string[]): Promise<ReadonlyMap<string, SessionRow>>;
  /** All of it or nothing. False: the rows are not at `from`, somebody else has changed them. */
  commit(change: Change): Promise<boolean>;
  /** An owner's rows that were created before the position, the newest first. */
  before(owner: string, position: bigint | null, count: number): Promise<readonly SessionRow[]>;
  /** The owner's rows that hold a sandbox or are about to, the newest first. */
  live(owner: string): Promise<readonly SessionRow[]>;
  /** Forgets everything. */
  clear(): Promise<void>;
  /** Whether this process is the one that follows the histories now; asked again and again. */
  claim(): Promise<boolean>;
  close(): Promise<void>;
}

/** More live sessions of one owner are not listed. */
export const MAX_LIVE = 1000;
