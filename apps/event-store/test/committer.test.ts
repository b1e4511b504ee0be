import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Committer, type Outcome } from '../src/storage/committer';
import { HighWaterMark } from '../src/storage/high-water-mark';
import { EventReader } from '../src/storage/reader';
import { databaseFile, openEvents } from '../src/storage/schema';
import { openDatabase } from '../src/storage/sqlite';
import { Writer } from '../src/storage/writer';

/** A store whose disk the test plays: each sync ends when the test says so, and as it says. */
function storeWithSlowDisk(directory: string) {
  const mark = new HighWaterMark(directory);
  const database = openEvents(directory, mark);
  const readDatabase = openDatabase(databaseFile(directory));
  const reader = new EventReader(readDatabase);
  const syncs: { succeed(): void; fail(error: Error): void }[] = [];
  const told: string[] = [];
  const groups: number[] = [];
  const sync = () =>
    new Promise<void>((succeed, fail) => {
      syncs.push({ succeed, fail });
    });
  const committer = new Committer(database, new Writer(database), reader, { sync }, mark, {
    published: (events) => told.push(`published ${events.map(({ revision }) => revision)}`),
    fatal: (error) => told.push(`fatal: ${(error as Error).message}`),
    refused: (error) => told.push(`refused: ${error}`),
    committed: ({ writes }) => groups.push(writes),
    syncing: () => undefined,
    idle: () => undefined,
  });
  const append = (stream: string, deadlineMs = Number.POSITIVE_INFINITY): Promise<Outcome> =>
    new Promise((done) => {
      const event = {
        id: crypto.randomUUID(),
        type: 't',
        contentType: 'application/json',
        data: Buffer.from('{}'),
        customMetadata: Buffer.alloc(0),
      };
      committer.submit({
        request: { kind: 'append', stream, expected: 'any', events: [event] },
        bytes: 2,
        deadlineMs,
        done: (outcome) => {
          told.push(`answered ${outcome.kind}`);
          done(outcome);
        },
      });
    });
  const close = () => {
    readDatabase.close();
    database.close();
    mark.close();
  };
  return { reader, syncs, told, groups, append, close, drained: () => committer.drained() };
}

const turns = async (count = 5) => {
  for (let turn = 0; turn < count; turn++) await new Promise(setImmediate);
};

describe('a group of appends', () => {
  let directory: string;
  let store: ReturnType<typeof storeWithSlowDisk>;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'event-store-test-'));
    store = storeWithSlowDisk(directory);
  });
  afterEach(() => {
    store.close();
    rmSync(directory, { recursive: true });
  });

  it('is neither answered nor published nor readable before its sync has ended', async () => {
    const answer = store.append('s');
    await turns();
    expect(store.syncs).toHaveLength(1);
    expect(store.told).toEqual([]);
    expect(store.reader.findStream('s')).toBeUndefined();
    expect(store.reader.lastPosition()).toBe(0);
    store.syncs[0]?.succeed();
    expect(await answer).toMatchObject({ kind: 'written', revision: 0 });
    expect(store.told).toEqual(['published 0', 'answered written']);
    expect(store.reader.findStream('s')).toMatchObject({ head: 0 });
  });

  it('is everything that arrived during the previous sync', async () => {
    const first = store.append('s');
    await turns();
    const others = [store.append('s'), store.append('s'), store.append('other')];
    await turns();
    expect(store.syncs).toHaveLength(1);
    store.syncs[0]?.succeed();
    await first;
    expect(store.syncs).toHaveLength(2);
    store.syncs[1]?.succeed();
    await Promise.all(others);
    expect(store.groups).toEqual([1, 3]);
  });

  it('is answered although its successor is not durable, and shows nothing of it', async () => {
    const first = store.append('s');
    await turns();
    store.append('s');
    store.syncs[0]?.succeed();
    expect(await first).toMatchObject({ kind: 'written', revision: 0 });
    await turns();
    expect(store.told).toEqual(['published 0', 'answered written']);
    expect(store.reader.findStream('s')).toMatchObject({ head: 0 });
    store.syncs[1]?.succeed();
    await turns();
    expect(store.reader.findStream('s')).toMatchObject({ head: 1 });
  });

  it('is waited for by those who wait for it, however many follow', async () => {
    const first = store.append('s');
    await turns();
    const drained = store.drained();
    store.append('s');
    store.syncs[0]?.succeed();
    await first;
    await drained;
    expect(store.told.filter((text) => text === 'answered written')).toHaveLength(1);
    store.syncs[1]?.succeed();
    await turns();
  });

  it('is never answered when its sync fails, and the process is told to end', async () => {
    store.append('s');
    await turns();
    store.syncs[0]?.fail(new Error('EIO'));
    await turns();
    expect(store.told).toEqual(['fatal: EIO']);
  });

  it('leaves out what is past its deadline by then', async () => {
    const first = store.append('s');
    await turns();
    const late = store.append('s', Date.now() - 1);
    store.syncs[0]?.succeed();
    await first;
    expect(await late).toEqual({ kind: 'deadline_exceeded' });
    expect(store.reader.findStream('s')).toMatchObject({ head: 0 });
  });
});
