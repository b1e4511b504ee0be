import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { HighWaterMark } from './high-water-mark';
import { type Database, isCorrupt, openDatabase } from './sqlite';

export const databaseFile = (directory: string): string => join(directory, 'events.db');
export const walFile = (directory: string): string => join(directory, 'events.db-wal');

const SCHEMA_VERSION = 1;

/**
 * `events.frame` is the last column and holds what a read sends (see recorded-event.ts): a scan for a
 * filter never touches the pages that large events overflow into. A stream's head is its largest
 * revision, found by the index: nothing has to be updated besides the inserted row. Scavenging therefore
 * always leaves a stream its last event.
 */
const SCHEMA = `
  CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    truncate_before INTEGER NOT NULL DEFAULT 0,
    max_count INTEGER,
    max_age_s INTEGER,
    tombstoned INTEGER NOT NULL DEFAULT 0,
    scavenge INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX streams_to_scavenge ON streams (id) WHERE scavenge = 1;
  CREATE INDEX streams_with_age ON streams (id) WHERE max_age_s IS NOT NULL;
  CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    frame BLOB NOT NULL
  );
  CREATE UNIQUE INDEX events_of_stream ON events (stream, revision);
  PRAGMA user_version = ${SCHEMA_VERSION};
`;

export class DamagedStore extends Error {
  readonly code = 'damaged_store';
  constructor(directory: string, what: string) {
    super(
      `${directory}: ${what}. Nothing was changed. Restore events.db (and events.db-wal, if the backup ` +
        'has one) from a backup, or, to go on with what is left and accept the loss, delete ' +
        'high-water-mark in that directory',
    );
    this.name = 'DamagedStore';
  }
}

export function openEvents(directory: string, mark: HighWaterMark): Database {
  const file = databaseFile(directory);
  if (mark.initial !== undefined && mark.initial > 0 && !existsSync(file)) {
    throw new DamagedStore(directory, 'events were acknowledged but events.db is missing');
  }
  const database = openDatabase(file, { timeoutMs: 5000 });
  try {
    prepare(database, directory, mark);
    return database;
  } catch (error) {
    // Not closed: closing would fold the write-ahead log into the database, and a damaged store is left
    // as it was found. The process ends here.
    if (isCorrupt(error)) {
      throw new DamagedStore(directory, `events.db is damaged (${(error as Error).message})`);
    }
    throw error;
  }
}

function prepare(database: Database, directory: string, mark: HighWaterMark): void {
  database.exec('PRAGMA journal_mode = WAL');
  // See durability.ts for why NORMAL together with a sync of our own is durable.
  database.exec('PRAGMA synchronous = NORMAL');
  database.exec('PRAGMA wal_autocheckpoint = 0');
  database.exec('PRAGMA cache_size = -32768');
  const version = Number(database.prepare('PRAGMA user_version').get()?.[0]);
  if (version === 0) database.exec(`BEGIN; ${SCHEMA} COMMIT`);
  else if (version !== SCHEMA_VERSION) {
    throw new Error(
      `${directory} has schema ${version}, this program knows ${SCHEMA_VERSION}: use the version that wrote it`,
    );
  }
  const last = Number(database.prepare('SELECT max(position) FROM events').get()?.[0] ?? 0);
  if (mark.initial !== undefined && last < mark.initial) {
    throw new DamagedStore(
      directory,
      `the last acknowledged event has position ${mark.initial} but the database ends at ${last}`,
    );
  }
}
