import { closeSync, openSync, writeSync } from 'node:fs';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { HighWaterMark } from '../src/storage/high-water-mark';
import { EventReader } from '../src/storage/reader';
import { databaseFile, openEvents } from '../src/storage/schema';
import { type Database, openDatabase } from '../src/storage/sqlite';

const EVENTS = 20_000;

afterAll(releaseAll);

/** Pages of the index by which a stream is read, in the order of their revisions. */
const leavesOf = (database: Database): readonly number[] =>
  database
    .prepare(
      `SELECT pageno FROM dbstat WHERE name = 'events_of_stream' AND pagetype = 'leaf' ORDER BY path`,
    )
    .all()
    .map(([page]) => Number(page));

/** A store with one long stream, of which whoever touches the pages that are chosen finds them damaged. */
function storeDamagedAt(choose: (leaves: readonly number[]) => readonly number[]): string {
  const directory = temporaryDirectory('reader');
  const mark = new HighWaterMark(directory);
  const database = openEvents(directory, mark);
  database.exec(`
    INSERT INTO streams (id, name) VALUES (1, 'long');
    WITH RECURSIVE n (revision) AS (SELECT 0 UNION ALL SELECT revision + 1 FROM n LIMIT ${EVENTS})
    INSERT INTO events (stream, revision, id, type, created_ms, frame)
    SELECT 1, revision, 'id', 'type', 1, x'00' FROM n;
    PRAGMA wal_checkpoint(TRUNCATE);
  `);
  const pages = choose(leavesOf(database));
  const pageBytes = Number(database.prepare('PRAGMA page_size').get()?.[0]);
  database.close();
  mark.close();
  const file = openSync(databaseFile(directory), 'r+');
  for (const page of pages)
    writeSync(file, Buffer.alloc(pageBytes), 0, pageBytes, (page - 1) * pageBytes);
  closeSync(file);
  return directory;
}

function read(directory: string, direction: 'forwards' | 'backwards', revision: number): number[] {
  const database = openDatabase(databaseFile(directory));
  try {
    const stream = {
      ...{ id: 1, head: EVENTS - 1, firstRevision: 0, notBeforeMs: 0 },
      ...{ tombstoned: false, exists: true },
    };
    const events = new EventReader(database).readStream(stream, direction, revision, 3);
    return events.map((event) => event.revision);
  } finally {
    database.close();
  }
}

/** All but a few at one end. */
const early = (leaves: readonly number[]) => leaves.slice(0, -3);
const late = (leaves: readonly number[]) => leaves.slice(3);

describe('a read of a stream', () => {
  it('that begins late looks at nothing before', () => {
    const directory = storeDamagedAt(early);
    expect(read(directory, 'forwards', EVENTS - 10)).toEqual([19_990, 19_991, 19_992]);
    expect(() => read(directory, 'forwards', 0)).toThrow(/malformed/);
  });

  it('backwards, that begins early, looks at nothing after', () => {
    const directory = storeDamagedAt(late);
    expect(read(directory, 'backwards', 10)).toEqual([10, 9, 8]);
    expect(() => read(directory, 'backwards', EVENTS - 1)).toThrow(/malformed/);
  });
});
