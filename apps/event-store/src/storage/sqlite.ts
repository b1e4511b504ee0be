import { DatabaseSync } from '@photostructure/sqlite';

/** The only file that names the SQLite binding. Its interface is that of node:sqlite. */

export type SqlValue = number | string | Uint8Array | null;
export type Row = readonly SqlValue[];

export interface Statement {
  run(...values: SqlValue[]): number;
  get(...values: SqlValue[]): Row | undefined;
  all(...values: SqlValue[]): Row[];
  /** The database is being read until the iteration ends: end it before returning to the event loop. */
  iterate(...values: SqlValue[]): IterableIterator<Row>;
}

export interface Database {
  exec(sql: string): void;
  inTransaction(): boolean;
  prepare(sql: string): Statement;
  close(): void;
}

export function openDatabase(file: string, options: { timeoutMs?: number } = {}): Database {
  const database = new DatabaseSync(file, { timeout: options.timeoutMs ?? 0 });
  return {
    exec: (sql) => database.exec(sql),
    inTransaction: () => database.isTransaction,
    prepare: (sql) => {
      const statement = database.prepare(sql);
      statement.setReturnArrays(true);
      return {
        run: (...values) => statement.run(...values).changes,
        get: (...values) => statement.get(...values),
        all: (...values) => statement.all(...values),
        iterate: (...values) => statement.iterate(...values),
      };
    },
    close: () => database.close(),
  };
}

const SQLITE_BUSY = 5;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_NOTADB = 26;
/** Raised when the shared-memory index of the write-ahead log cannot grow: a full disk by another name. */
const SQLITE_IOERR_SHMSIZE = SQLITE_IOERR | (19 << 8);

const resultCode = (error: unknown): number =>
  error instanceof Error && 'sqliteExtendedCode' in error ? Number(error.sqliteExtendedCode) : 0;

const SQLITE_IOERR_FSYNC = SQLITE_IOERR | (4 << 8);
const SQLITE_IOERR_DIR_FSYNC = SQLITE_IOERR | (5 << 8);

/** What the kernel holds is unknown after this: nothing may be acknowledged any more. */
export const isFailedSync = (error: unknown): boolean =>
  [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC].includes(resultCode(error));

export const isBusy = (error: unknown): boolean => (resultCode(error) & 255) === SQLITE_BUSY;

export const isDiskFull = (error: unknown): boolean =>
  (resultCode(error) & 255) === SQLITE_FULL || resultCode(error) === SQLITE_IOERR_SHMSIZE;

export const isCorrupt = (error: unknown): boolean =>
  [SQLITE_CORRUPT, SQLITE_NOTADB].includes(resultCode(error) & 255);
