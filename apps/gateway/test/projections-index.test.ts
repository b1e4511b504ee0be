import { join } from 'node:path';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import { Malformed } from '@vmux/events';
import {
  type EventStoreServer,
  type Redis,
  releaseAll,
  startEventStore,
  startRedis,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { Redis as RedisClient } from 'ioredis';
import { IndexBehind, IndexUnavailable } from '../src/application/session-index';
import { isLive, type SessionRow, summaryOf } from '../src/projections/session-row';
import { type RunningIndex, startSessionIndex } from '../src/projections/start-index';
import {
  append,
  created,
  happenings,
  owners,
  placedIn,
  replayed,
  requested,
  silent,
  started,
} from './projections-harness';

let eventStore: EventStoreServer;
let redis: Redis;
let store: EventStore;
let indexes: RunningIndex[];

beforeEach(async () => {
  indexes = [];
  eventStore = await startEventStore({ insecure: true });
  redis = await startRedis({ password: 'secret' });
  store = connectEventStore({ url: eventStore.url });
});
afterEach(async () => {
  await Promise.all(indexes.map((index) => index.stop()));
  await store.close();
  await releaseAll();
});

const start = (place: {
  dataDir?: string;
  redis?: boolean;
  store?: EventStore;
  waitMs?: number;
}) => {
  const index = startSessionIndex({
    store: place.store ?? store,
    redisUrl: place.redis ? redis.url : null,
    dataDir: place.dataDir ?? null,
    log: silent,
    waitMs: place.waitMs ?? 10_000,
  });
  indexes.push(index);
  return index;
};

const newestFirst = (a: SessionRow, b: SessionRow) =>
  BigInt(a.createdPosition) < BigInt(b.createdPosition) ? 1 : -1;

/** What is listed, page by page, is what a replay from the beginning gives. */
async function expectReplay(index: RunningIndex, after: bigint) {
  const rows = [...replayed(await placedIn(store)).values()].sort(newestFirst);
  for (const owner of owners) {
    const owned = rows.filter((row) => row.owner === owner);
    const listed = [];
    let cursor: string | undefined;
    do {
      const page = await index.list({ owner }, { limit: 7, after, ...(cursor ? { cursor } : {}) });
      listed.push(...page.sessions);
      cursor = page.cursor ?? undefined;
    } while (cursor !== undefined);
    expect(listed).toEqual(owned.map(summaryOf));
    expect(await index.live(owner)).toEqual(owned.filter(isLive).map(summaryOf));
    const usage = await index.usage(owner, 0);
    expect(usage.sessions).toBe(owned.length);
    expect(usage.cpuMs).toBe(owned.reduce((sum, row) => sum + row.usage.cpuMs, 0));
  }
}

const complete = (index: RunningIndex) =>
  until(async () => (await index.head().catch(() => null))?.complete === true);

describe.each([{ redis: false }, { redis: true }])(
  'The session list, in Redis: $redis',
  (place) => {
    it('equals a replay from the beginning', async () => {
      await append(store, happenings(1, 40, 500));
      const index = start(place);
      const after = await append(store, happenings(2, 40, 300));
      await expectReplay(index, after);
    });

    it('is empty and available in a store without sessions', async () => {
      const index = start(place);
      await complete(index);
      expect(await index.list({ owner: 'ann' }, { limit: 5 })).toEqual({
        sessions: [],
        cursor: null,
      });
    });

    it('filters by status, provider, name and labels', async () => {
      const after = await append(store, [
        { sessionId: 'a-0001', event: created('a-0001', 'ann', 1, { team: 'x', tier: '1' }) },
        { sessionId: 'b-0002', event: created('b-0002', 'ann', 2, { team: 'x' }) },
        { sessionId: 'c-0003', event: created('c-0003', 'bob', 3, { team: 'x' }) },
        { sessionId: 'b-0002', event: requested(1, 4, 'docker') },
        { sessionId: 'b-0002', event: started(1, 5) },
      ]);
      const index = start(place);
      const ids = async (filter: object) => {
        const { sessions } = await index.list({ owner: 'ann', ...filter }, { limit: 10, after });
        return sessions.map(({ id }) => id);
      };
      expect(await ids({})).toEqual(['b-0002', 'a-0001']);
      expect(await ids({ statuses: ['running', 'failed'] })).toEqual(['b-0002']);
      expect(await ids({ provider: 'ns' })).toEqual(['a-0001']);
      expect(await ids({ name: 'a' })).toEqual(['a-0001']);
      expect(await ids({ labels: { team: 'x', tier: '1' } })).toEqual(['a-0001']);
      expect(await ids({ labels: { constructor: 'x' } })).toEqual([]);
    });

    it('pages on without a repeat or a hole while sessions are created and deleted', async () => {
      const name = (n: number) => `p-${n.toString(16).padStart(4, '0')}`;
      const made = (from: number, to: number) =>
        Array.from({ length: to - from }, (_, index) => ({
          sessionId: name(from + index),
          event: created(name(from + index), 'ann', from + index),
        }));
      const index = start(place);
      const after = await append(store, made(0, 20));
      const first = await index.list({ owner: 'ann' }, { limit: 8, after });
      const later = await append(store, made(20, 25));
      const second = await index.list(
        { owner: 'ann' },
        { limit: 100, after: later, cursor: first.cursor ?? '' },
      );
      expect([...first.sessions, ...second.sessions].map(({ id }) => id)).toEqual(
        Array.from({ length: 20 }, (_, n) => name(19 - n)),
      );
      expect(second.cursor).toBeNull();
    });

    it('refuses a cursor that is none', async () => {
      const index = start(place);
      await expect(index.list({ owner: 'ann' }, { limit: 5, cursor: '1;x' })).rejects.toThrow(
        Malformed,
      );
    });

    it('says that it is behind when a position does not come', async () => {
      const index = start({ ...place, waitMs: 100 });
      await complete(index);
      const far = index.list({ owner: 'ann' }, { limit: 5, after: 2n ** 62n });
      await expect(far).rejects.toThrow(IndexBehind);
    });

    it('is the same after it was built again', async () => {
      const after = await append(store, happenings(3, 20, 200));
      const index = start(place);
      await expectReplay(index, after);
      await index.rebuild();
      await complete(index);
      await expectReplay(index, after);
    });

    it('goes on when the event store was away', async () => {
      const index = start(place);
      await append(store, happenings(4, 20, 100));
      await eventStore.restart();
      const after = await append(store, happenings(5, 20, 100));
      await expectReplay(index, after);
    });

    it('is built again when it is of another event store', async () => {
      const dataDir = temporaryDirectory();
      const index = start({ ...place, dataDir });
      await expectReplay(index, await append(store, happenings(6, 20, 200)));
      await index.stop();
      const other = await startEventStore({ insecure: true });
      const old = store;
      store = connectEventStore({ url: other.url });
      const again = start({ ...place, dataDir });
      await expectReplay(again, await append(store, happenings(7, 20, 20)));
      await old.close();
    });
  },
);

describe('The session list in memory', () => {
  it('goes on from its file, and only from there', async () => {
    const dataDir = temporaryDirectory();
    const first = start({ dataDir });
    await expectReplay(first, await append(store, happenings(8, 20, 200)));
    await first.stop();
    const asked: unknown[] = [];
    const watched: EventStore = {
      append: (...args) => store.append(...args),
      read: (...args) => store.read(...args),
      close: () => store.close(),
      subscribe: (source, signal) => {
        asked.push('afterPosition' in source ? source.afterPosition : null);
        return store.subscribe(source, signal);
      },
    };
    const { position } = await first.head();
    const second = start({ dataDir, store: watched });
    await expectReplay(second, await append(store, happenings(9, 20, 100)));
    expect(asked).toEqual([position]);
  });

  it('needs no directory', async () => {
    const index = start({ dataDir: join(temporaryDirectory(), 'not', 'there') });
    await expectReplay(index, await append(store, happenings(10, 5, 20)));
  });
});

describe('The session list in Redis', () => {
  it('is shared by gateways, whoever of them goes', async () => {
    const both = [start({ redis: true }), start({ redis: true })];
    for (let round = 0; round < 2; round++) {
      const after = await append(store, happenings(20 + round, 20, 150));
      for (const index of both) await expectReplay(index, after);
      await both.shift()?.stop();
      both.push(start({ redis: true }));
    }
  });

  it('is built again after Redis was flushed, though nothing happens', async () => {
    const index = start({ redis: true });
    const after = await append(store, happenings(30, 20, 150));
    await expectReplay(index, after);
    const client = new RedisClient(redis.url);
    await client.flushall();
    client.disconnect();
    await until(async () => (await index.head()).position === null);
    await complete(index);
    await expectReplay(index, after);
  });

  it('says that it is unavailable while Redis is away, and is back with it', async () => {
    const index = start({ redis: true });
    await expectReplay(index, await append(store, happenings(40, 20, 150)));
    await redis.kill();
    await until(async () => {
      const faults = await Promise.all([
        index.list({ owner: 'ann' }, { limit: 5 }).catch((fault: unknown) => fault),
        index.live('ann').catch((fault: unknown) => fault),
      ]);
      return faults.every((fault) => fault instanceof IndexUnavailable);
    });
    const after = await append(store, happenings(41, 20, 150));
    await redis.restart();
    await complete(index);
    await expectReplay(index, after);
  });

  it('starts without Redis and shows everything once it comes', async () => {
    await redis.kill();
    const index = start({ redis: true });
    const after = await append(store, happenings(50, 20, 100));
    await expect(index.list({ owner: 'ann' }, { limit: 5 })).rejects.toThrow(IndexUnavailable);
    await redis.restart();
    await complete(index);
    await expectReplay(index, after);
  });
});
