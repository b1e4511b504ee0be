import { randomUUID } from 'node:crypto';
import {
  END,
  EventStoreDBClient,
  eventTypeFilter,
  type Filter,
  jsonEvent,
  type Position,
  START,
  streamNameFilter,
} from '@eventstore/db-client';
import { Bench, type Server } from './server';

// Bounds a test that waits for something that does not come, on a busy machine too.
jest.setTimeout(120_000);

const bench = new Bench();
let server: Server;
let client: EventStoreDBClient;

beforeAll(async () => {
  server = await bench.start(undefined, '--insecure');
  client = EventStoreDBClient.connectionString(server.plainUrl);
});
afterAll(async () => {
  await client.dispose();
  await bench.clean();
});

const fresh = (prefix = 'test'): string => `${prefix}-${randomUUID()}`;
const events = (count: number, type = 'happened') =>
  Array.from({ length: count }, (_, number) => jsonEvent({ type, data: { number } }));

interface Seen {
  streamId: string;
  revision: number;
  position: bigint;
  type: string;
}

/** Collects until `count` events have come. */
function follow(
  subscription: ReturnType<EventStoreDBClient['subscribeToAll' | 'subscribeToStream']>,
  count: number,
): Promise<Seen[]> {
  return new Promise((resolve, reject) => {
    const seen: Seen[] = [];
    subscription.on('error', reject);
    subscription.on('data', ({ event }) => {
      if (!event) return;
      const { streamId, revision, type } = event;
      const position = (event.position as Position | undefined)?.commit ?? 0n;
      seen.push({ streamId, revision: Number(revision), position, type });
      if (seen.length < count) return;
      subscription.unsubscribe().then(() => resolve(seen), reject);
    });
  });
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

describe('subscribing to a stream', () => {
  it('delivers the past, says that it has caught up, and delivers what follows', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(3));
    const subscription = client.subscribeToStream(stream, { fromRevision: START });
    const told: string[] = [];
    subscription.on('confirmation', () => told.push('confirmation'));
    subscription.on('data', () => told.push('event'));
    const seen = follow(subscription, 5);
    await new Promise<void>((resolve) => subscription.on('caughtUp', () => resolve()));
    told.push('caughtUp');
    await client.appendToStream(stream, events(2));
    expect((await seen).map(({ revision }) => revision)).toEqual(upTo(5));
    expect(told).toEqual(['confirmation', 'event', 'event', 'event', 'caughtUp', 'event', 'event']);
  });

  it('begins after the given revision, or after the end', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(4));
    const after = follow(client.subscribeToStream(stream, { fromRevision: 1n }), 3);
    const fromEnd = client.subscribeToStream(stream, { fromRevision: END });
    const later = follow(fromEnd, 1);
    await new Promise<void>((resolve) => fromEnd.on('caughtUp', () => resolve()));
    await client.appendToStream(stream, events(1));
    expect((await after).map(({ revision }) => revision)).toEqual([2, 3, 4]);
    expect((await later).map(({ revision }) => revision)).toEqual([4]);
  });

  it('waits for a stream that does not exist yet', async () => {
    const stream = fresh();
    const seen = follow(client.subscribeToStream(stream), 2);
    await client.appendToStream(stream, events(2));
    expect((await seen).map(({ revision }) => revision)).toEqual([0, 1]);
  });

  it('ends with the error of a deleted stream when the stream is tombstoned', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(1));
    const subscription = client.subscribeToStream(stream);
    const failed = new Promise((resolve) => subscription.on('error', resolve));
    subscription.on('data', () => undefined);
    await new Promise<void>((resolve) => subscription.on('caughtUp', () => resolve()));
    await client.tombstoneStream(stream);
    expect(await failed).toMatchObject({ type: 'stream-deleted', streamName: stream });
  });
});

describe('subscribing to all streams', () => {
  it('has neither a gap nor a repeat while others append all the time', async () => {
    const prefix = fresh('seam');
    const writers = 4;
    const rounds = 60;
    const total = writers * rounds * 3;
    const write = async (writer: number) => {
      for (let round = 0; round < rounds; round++) {
        await client.appendToStream(`${prefix}-${writer}`, events(3));
      }
    };
    const followers: Promise<Seen[]>[] = [];
    const filter = streamNameFilter({ prefixes: [prefix] });
    const join = async () => {
      for (let count = 0; count < 20; count++) {
        followers.push(follow(client.subscribeToAll({ fromPosition: START, filter }), total));
        await client.appendToStream(fresh('noise'), events(1));
      }
    };
    await Promise.all([...upTo(writers).map(write), join()]);
    const [first, ...others] = await Promise.all(followers);
    expect(new Set(first?.map(({ position }) => position)).size).toBe(total);
    const positions = first?.map(({ position }) => Number(position)) ?? [];
    expect(positions).toEqual([...positions].sort((a, b) => a - b));
    for (const seen of others) expect(seen).toEqual(first);
  });

  it('filters by the prefixes and expressions of names and types', async () => {
    const [left, right] = [fresh('left'), fresh('right')];
    const subscribe = (filter: Filter) =>
      follow(client.subscribeToAll({ fromPosition: END, filter }), 2);
    const seen = [
      subscribe(streamNameFilter({ prefixes: [left] })),
      subscribe(streamNameFilter({ regex: `^${right}` })),
      subscribe(eventTypeFilter({ prefixes: ['other-', 'red-'] })),
      subscribe(eventTypeFilter({ regex: '^blue-.+$' })),
    ];
    const ready = client.subscribeToAll({ fromPosition: END });
    await new Promise<void>((resolve) => {
      ready.on('data', () => undefined);
      ready.on('caughtUp', () => resolve());
    });
    await ready.unsubscribe();
    await client.appendToStream(left, [...events(1, 'red-1'), ...events(1, 'blue-1')]);
    await client.appendToStream(right, [...events(1, 'red-2'), ...events(1, 'blue-2')]);
    const [byPrefix, byRegex, byTypePrefix, byTypeRegex] = await Promise.all(seen);
    expect(byPrefix?.map(({ streamId }) => streamId)).toEqual([left, left]);
    expect(byRegex?.map(({ streamId }) => streamId)).toEqual([right, right]);
    expect(byTypePrefix?.map(({ type }) => type)).toEqual(['red-1', 'red-2']);
    expect(byTypeRegex?.map(({ type }) => type)).toEqual(['blue-1', 'blue-2']);
  });

  it('refuses an expression that would never end and goes on', async () => {
    await client.appendToStream(`${'a'.repeat(60)}!`, events(1));
    const filter = streamNameFilter({ regex: '^(a+)+$' });
    await expect(
      follow(client.subscribeToAll({ fromPosition: START, filter }), 1),
    ).rejects.toMatchObject({ message: expect.stringContaining('takes too long') });
    const stream = fresh();
    await client.appendToStream(stream, events(1));
    await expect(follow(client.subscribeToStream(stream), 1)).resolves.toHaveLength(1);
  });

  it('sends checkpoints at the asked interval, from which a reader can go on', async () => {
    const wanted = fresh('wanted');
    const checkpoints: bigint[] = [];
    const filter = streamNameFilter({
      prefixes: [wanted],
      maxSearchWindow: 10,
      checkpointInterval: 2,
      checkpointReached: async (_, { commit }) => {
        checkpoints.push(commit);
      },
    });
    const head = await client.appendToStream(fresh('before'), events(1));
    const fromPosition = head.position ?? START;
    const seen = follow(client.subscribeToAll({ fromPosition, filter }), 1);
    await client.appendToStream(fresh('noise'), events(60));
    const last = await client.appendToStream(wanted, events(1));
    expect(await seen).toMatchObject([{ streamId: wanted }]);
    expect(checkpoints.length).toBeGreaterThanOrEqual(3);
    expect(checkpoints.every((at) => at < (last.position?.commit ?? 0n))).toBe(true);
    const commit = checkpoints.at(-1) ?? 0n;
    const resumed = client.subscribeToAll({ fromPosition: { commit, prepare: commit }, filter });
    expect(await follow(resumed, 1)).toMatchObject([{ streamId: wanted, revision: 0 }]);
  });
});
