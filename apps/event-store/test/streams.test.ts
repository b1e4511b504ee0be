import { randomUUID } from 'node:crypto';
import {
  ANY,
  BACKWARDS,
  binaryEvent,
  END,
  EventStoreDBClient,
  FORWARDS,
  jsonEvent,
  NO_STREAM,
  type RecordedEvent,
  START,
  STREAM_EXISTS,
  StreamDeletedError,
  StreamNotFoundError,
  WrongExpectedVersionError,
} from '@eventstore/db-client';
import { Bench, type Server } from './server';

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

const fresh = (): string => `test-${randomUUID()}`;
const events = (count: number, type = 'happened') =>
  Array.from({ length: count }, (_, number) => jsonEvent({ type, data: { number } }));

type ReadOptions = Parameters<EventStoreDBClient['readStream']>[1];

async function recorded(stream: string, options: ReadOptions = {}): Promise<RecordedEvent[]> {
  const found: RecordedEvent[] = [];
  for await (const { event } of client.readStream(stream, options)) {
    if (event) found.push(event);
  }
  return found;
}

const revisions = async (stream: string, options?: ReadOptions): Promise<number[]> =>
  (await recorded(stream, options)).map(({ revision }) => Number(revision));

const bytes = (value: unknown): Buffer =>
  value instanceof Uint8Array ? Buffer.from(value) : Buffer.alloc(0);

describe('appending', () => {
  it('numbers events from 0 within their stream and places them in order over all streams', async () => {
    const stream = fresh();
    const first = await client.appendToStream(stream, events(2), { expectedRevision: NO_STREAM });
    const second = await client.appendToStream(stream, events(1), { expectedRevision: 1n });
    expect(first.nextExpectedRevision).toBe(1n);
    expect(second.nextExpectedRevision).toBe(2n);
    expect(second.position?.commit).toBeGreaterThan(first.position?.commit ?? 0n);
    expect(await revisions(stream)).toEqual([0, 1, 2]);
  });

  it('keeps type, JSON data, metadata and id as they were', async () => {
    const stream = fresh();
    const sent = jsonEvent({ type: 'köpfe-✓', data: { a: [1, 'é'] }, metadata: { by: 'x' } });
    await client.appendToStream(stream, sent);
    const found = await recorded(stream);
    const { id, type, data, metadata } = sent;
    expect(found).toMatchObject([{ id, type, data, metadata, isJson: true, streamId: stream }]);
    expect(Math.abs(Number(found[0]?.created) - Date.now())).toBeLessThan(60_000);
  });

  it.each([
    ['every byte value', Buffer.from(Array.from({ length: 512 }, (_, at) => at % 256))],
    ['no bytes at all', Buffer.alloc(0)],
    ['a quarter of a mebibyte', Buffer.alloc(256 * 1024, 'ÿ', 'latin1')],
  ])('returns binary data of %s byte for byte', async (_, data) => {
    const stream = fresh();
    await client.appendToStream(stream, binaryEvent({ type: 'bytes', data, metadata: data }));
    const found = await recorded(stream);
    expect(found.map((event) => bytes(event.data).equals(data))).toEqual([true]);
    expect(found.map((event) => bytes(event.metadata).equals(data))).toEqual([true]);
  });

  it('refuses what does not meet the expected revision and says what the stream has', async () => {
    const stream = fresh();
    await expect(
      client.appendToStream(stream, events(1), { expectedRevision: STREAM_EXISTS }),
    ).rejects.toMatchObject({ actualVersion: 'no_stream', expectedVersion: 'stream_exists' });
    await expect(
      client.appendToStream(stream, events(1), { expectedRevision: 0n }),
    ).rejects.toBeInstanceOf(WrongExpectedVersionError);
    await client.appendToStream(stream, events(3), { expectedRevision: ANY });
    await client.appendToStream(stream, events(1), { expectedRevision: STREAM_EXISTS });
    await expect(
      client.appendToStream(stream, events(1), { expectedRevision: NO_STREAM }),
    ).rejects.toMatchObject({
      actualVersion: 3n,
      expectedVersion: 'no_stream',
      streamName: stream,
    });
    await expect(
      client.appendToStream(stream, events(1), { expectedRevision: 1n }),
    ).rejects.toMatchObject({ actualVersion: 3n, expectedVersion: 1n });
    expect(await revisions(stream)).toEqual([0, 1, 2, 3]);
  });

  it.each([[NO_STREAM], [ANY]] as const)(
    'stores an append that is repeated with %s and the same ids once',
    async (expectedRevision) => {
      const stream = fresh();
      const sent = events(3);
      const first = await client.appendToStream(stream, sent, { expectedRevision });
      await client.appendToStream(stream, events(1), { expectedRevision: 2n });
      expect(await client.appendToStream(stream, sent, { expectedRevision })).toEqual(first);
      expect(await revisions(stream)).toEqual([0, 1, 2, 3]);
    },
  );

  it('stores an append that is repeated at an exact revision once, and refuses other events there', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(2));
    const sent = events(2);
    const first = await client.appendToStream(stream, sent, { expectedRevision: 1n });
    expect(await client.appendToStream(stream, sent, { expectedRevision: 1n })).toEqual(first);
    await expect(
      client.appendToStream(stream, [...sent, ...events(1)], { expectedRevision: 1n }),
    ).rejects.toBeInstanceOf(WrongExpectedVersionError);
    expect(await revisions(stream)).toEqual([0, 1, 2, 3]);
  });

  it('refuses more than a mebibyte by the error of the protocol, however it is split', async () => {
    const stream = fresh();
    const ofSize = (bytes: number) => binaryEvent({ type: 'b', data: Buffer.alloc(bytes) });
    const tooLarge = { type: 'maximum-append-size-exceeded', maxAppendSize: 1024 * 1024 };
    for (const batchAppendSize of [64 * 1024, undefined]) {
      const parts = Array.from({ length: 40 }, () => ofSize(30_000));
      await expect(client.appendToStream(stream, parts, { batchAppendSize })).rejects.toMatchObject(
        tooLarge,
      );
    }
    await expect(client.appendToStream(stream, ofSize(8 * 1024 * 1024))).rejects.toMatchObject(
      tooLarge,
    );
    await client.appendToStream(stream, ofSize(1024 * 1024 - 2));
    expect(await revisions(stream)).toEqual([0]);
  });

  it('does not store an append whose deadline has passed', async () => {
    const stream = fresh();
    await expect(
      client.appendToStream(stream, events(1), { deadline: -1000 }),
    ).rejects.toMatchObject({ type: 'deadline-exceeded' });
    await expect(revisions(stream)).rejects.toBeInstanceOf(StreamNotFoundError);
  });

  it('refuses one malformed append by itself, not those that are under way with it', async () => {
    const stream = fresh();
    const nameless = { ...jsonEvent({ type: 'x', data: {} }), type: '' };
    const [good, bad, alsoGood] = await Promise.allSettled([
      client.appendToStream(stream, events(1)),
      client.appendToStream(stream, nameless),
      client.appendToStream(stream, events(1)),
    ]);
    expect([good?.status, alsoGood?.status]).toEqual(['fulfilled', 'fulfilled']);
    expect(bad).toMatchObject({
      status: 'rejected',
      reason: { message: expect.stringContaining('an event has no type') },
    });
    expect(await revisions(stream)).toEqual([0, 1]);
  });

  it('takes unary appends too, with the same answers', async () => {
    const stream = fresh();
    // Credentials of their own make the client leave its batch call; without TLS it drops them.
    const unary = { credentials: { username: 'u', password: 'p' } };
    const sent = events(2);
    const first = await client.appendToStream(stream, sent, {
      ...unary,
      expectedRevision: NO_STREAM,
    });
    expect(first.nextExpectedRevision).toBe(1n);
    expect(
      await client.appendToStream(stream, sent, { ...unary, expectedRevision: NO_STREAM }),
    ).toEqual(first);
    await expect(
      client.appendToStream(stream, events(1), { ...unary, expectedRevision: 7n }),
    ).rejects.toMatchObject({
      type: 'wrong-expected-version',
      actualVersion: 1n,
      expectedVersion: 7n,
    });
    await expect(
      client.appendToStream(stream, binaryEvent({ type: 'b', data: Buffer.alloc(2 ** 20) }), unary),
    ).rejects.toMatchObject({ type: 'maximum-append-size-exceeded', maxAppendSize: 1024 * 1024 });
  });
});

describe('reading', () => {
  const stream = fresh();
  beforeAll(async () => {
    await client.appendToStream(stream, events(10));
  });

  it.each([
    ['forwards', {}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
    ['forwards from a revision, which is included', { fromRevision: 8n }, [8, 9]],
    ['forwards up to a count', { maxCount: 2 }, [0, 1]],
    ['forwards from beyond the end', { fromRevision: 100n }, []],
    ['backwards from the end', { direction: BACKWARDS, fromRevision: END, maxCount: 2 }, [9, 8]],
    ['backwards from a revision', { direction: BACKWARDS, fromRevision: 2n }, [2, 1, 0]],
    ['backwards from the start', { direction: BACKWARDS, fromRevision: START }, [0]],
  ] as const)('goes %s', async (_, options, expected) => {
    expect(await revisions(stream, options)).toEqual(expected);
  });

  it('says that a stream does not exist', async () => {
    await expect(revisions(fresh())).rejects.toBeInstanceOf(StreamNotFoundError);
  });

  it('reads all streams in both directions from a position', async () => {
    const positions: bigint[] = [];
    for await (const { event } of client.readAll({ direction: FORWARDS })) {
      positions.push(event?.position.commit ?? 0n);
    }
    expect(positions).toEqual([...positions].sort((a, b) => Number(a - b)));
    expect(new Set(positions).size).toBe(positions.length);
    const middle = positions[5] ?? 0n;
    const at = { commit: middle, prepare: middle };
    const read = async (options: Parameters<typeof client.readAll>[0]) => {
      const found: bigint[] = [];
      for await (const { event } of client.readAll(options))
        found.push(event?.position.commit ?? 0n);
      return found;
    };
    expect(await read({ fromPosition: at, maxCount: 2 })).toEqual(positions.slice(5, 7));
    expect(await read({ fromPosition: at, direction: BACKWARDS })).toEqual(
      positions.slice(0, 5).reverse(),
    );
    expect(await read({ fromPosition: END, direction: BACKWARDS, maxCount: 3 })).toEqual(
      positions.slice(-3).reverse(),
    );
  });

  it('returns a long stream of many sizes whole and in order', async () => {
    const long = fresh();
    const sizes = Array.from({ length: 1500 }, (_, at) => (at % 50 === 0 ? 60_000 : at % 300));
    for (let at = 0; at < sizes.length; at += 100) {
      await client.appendToStream(
        long,
        sizes
          .slice(at, at + 100)
          .map((size) => binaryEvent({ type: 'b', data: Buffer.alloc(size, 7) })),
      );
    }
    const found = await recorded(long);
    expect(found.map(({ revision }) => Number(revision))).toEqual(sizes.map((_, at) => at));
    expect(found.map(({ data }) => bytes(data).length)).toEqual(sizes);
  });
});

describe('deleting', () => {
  it('hides a deleted stream and goes on numbering when it is used again', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(3));
    await expect(client.deleteStream(stream, { expectedRevision: 1n })).rejects.toMatchObject({
      type: 'wrong-expected-version',
      expectedVersion: 1n,
      actualVersion: 2n,
    });
    await client.deleteStream(stream, { expectedRevision: 2n });
    await expect(revisions(stream)).rejects.toBeInstanceOf(StreamNotFoundError);
    const again = events(2);
    await client.appendToStream(stream, again, { expectedRevision: NO_STREAM });
    await client.appendToStream(stream, again, { expectedRevision: NO_STREAM });
    expect(await revisions(stream)).toEqual([3, 4]);
  });

  it('never lets the name of a tombstoned stream be used again', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(3));
    await client.tombstoneStream(stream, { expectedRevision: 2n });
    await expect(revisions(stream)).rejects.toBeInstanceOf(StreamDeletedError);
    await expect(client.appendToStream(stream, events(1))).rejects.toBeInstanceOf(
      StreamDeletedError,
    );
    await expect(client.deleteStream(stream)).rejects.toBeInstanceOf(StreamDeletedError);
  });
});

describe('stream metadata', () => {
  it('is kept and can be read back', async () => {
    const stream = fresh();
    await client.setStreamMetadata(stream, { maxCount: 5, mine: 'x' });
    expect((await client.getStreamMetadata(stream)).metadata).toEqual({ maxCount: 5, mine: 'x' });
  });

  it('limits the number of events that are shown, and the rest is removed', async () => {
    const stream = fresh();
    await client.setStreamMetadata(stream, { maxCount: 2 });
    await client.appendToStream(stream, events(5));
    expect(await revisions(stream)).toEqual([3, 4]);
    await client.appendToStream(stream, events(1));
    expect(await revisions(stream)).toEqual([4, 5]);
  });

  it('hides events that have reached their age', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(3));
    await client.setStreamMetadata(stream, { maxAge: 1 });
    while ((await revisions(stream)).length > 0) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const next = await client.appendToStream(stream, events(1), { expectedRevision: 2n });
    expect(next.nextExpectedRevision).toBe(3n);
  });

  it('truncates a stream before a revision', async () => {
    const stream = fresh();
    await client.appendToStream(stream, events(5));
    await client.setStreamMetadata(stream, { truncateBefore: 3 });
    expect(await revisions(stream)).toEqual([3, 4]);
    expect(await revisions(stream, { direction: BACKWARDS, fromRevision: END })).toEqual([4, 3]);
    await client.appendToStream(stream, events(1), { expectedRevision: 4n });
    expect(await revisions(stream)).toEqual([3, 4, 5]);
  });
});
