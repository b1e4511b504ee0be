import {
  connectEventStore,
  type EventStore,
  type ExpectedRevision,
  type NewEvent,
  type RecordedEvent,
  StoreUnavailable,
  type SubscriptionSource,
} from '@vmux/event-store';
import { releaseAll, type SeededRandom, seededRandom, startEventStore, until } from '@vmux/testing';

afterAll(releaseAll);

const KILLS = 20;
const ACKNOWLEDGED_BETWEEN_KILLS = 100;
const OWN_STREAM_WRITERS = 12;
const SHARED_STREAM_WRITERS = 4;

interface Acknowledged {
  readonly stream: string;
  readonly revision: number;
  readonly id: string;
}

/** Appends until told to stop, repeating whatever it gets no answer to, and notes every acknowledgement. */
async function write(
  store: EventStore,
  stream: string,
  isShared: boolean,
  random: SeededRandom,
  acknowledged: Acknowledged[],
  stopping: AbortSignal,
): Promise<void> {
  let expected: ExpectedRevision = isShared ? 'any' : 'none';
  while (!stopping.aborted) {
    const events: NewEvent[] = Array.from({ length: 1 + random.integer(3) }, () => ({
      id: random.uuid(),
      type: 'Written',
      data: random.bytes(random.integer(2_000)),
    }));
    const { revision } = await untilAnswered(() => store.append(stream, expected, events));
    for (const [n, { id }] of events.entries()) {
      acknowledged.push({ stream, revision: revision - events.length + 1 + n, id });
    }
    if (!isShared) expected = revision;
  }
}

async function untilAnswered<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (fault) {
      if (!(fault instanceof StoreUnavailable)) throw fault;
    }
  }
}

async function follow(
  store: EventStore,
  source: SubscriptionSource,
  seen: RecordedEvent[],
  stopping: AbortSignal,
): Promise<void> {
  for await (const item of store.subscribe(source, stopping)) {
    if (item.kind === 'event') seen.push(item.event);
  }
}

const place = ({ stream, revision, id }: Acknowledged): string => `${stream}@${revision} ${id}`;

it(`survives ${KILLS} kills under 16 writers and 4 subscribers with nothing lost, repeated or reordered`, async () => {
  const random = seededRandom(20);
  const server = await startEventStore();
  const stores = Array.from({ length: 4 }, () => connectEventStore({ url: server.url }));
  const storeOf = (n: number): EventStore => random.pick(stores.slice(n % 4).slice(0, 1));

  const [writersStop, subscribersStop] = [new AbortController(), new AbortController()];
  const acknowledged: Acknowledged[] = [];
  const shared = 'crash-shared';
  const names = Array.from({ length: OWN_STREAM_WRITERS }, (_, n) => `crash-own-${n}`);
  const targets = [...names, ...Array.from({ length: SHARED_STREAM_WRITERS }, () => shared)];
  const writers = targets.map((stream, n) => {
    const own = seededRandom(random.integer(2 ** 32));
    return write(storeOf(n), stream, stream === shared, own, acknowledged, writersStop.signal);
  });
  const sources: SubscriptionSource[] = [
    { prefixes: ['crash-'] },
    { prefixes: ['crash-own-'] },
    { stream: shared },
    { stream: 'crash-own-0' },
  ];
  const views = sources.map((source, n) => {
    const seen: RecordedEvent[] = [];
    const ended = follow(storeOf(n), source, seen, subscribersStop.signal);
    return { source, seen, ended };
  });
  const failed = Promise.race([...writers, ...views.map(({ ended }) => ended)]).then(() => {
    throw new Error('a writer or a subscriber ended by itself');
  });
  failed.catch(() => undefined);

  for (let kill = 0; kill < KILLS; kill++) {
    const before = acknowledged.length;
    const busy = () => acknowledged.length >= before + ACKNOWLEDGED_BETWEEN_KILLS;
    await Promise.race([failed, until(busy, { timeoutMs: 30_000, everyMs: 2 })]);
    await new Promise((resolve) => setTimeout(resolve, random.integer(100)));
    await server.kill();
    await server.restart();
  }
  writersStop.abort();
  await Promise.all(writers);

  const stored: RecordedEvent[] = [];
  for (const stream of [...names, shared]) {
    for await (const event of storeOf(0).read(stream)) stored.push(event);
  }
  expect(stored.map(place).sort()).toEqual(acknowledged.map(place).sort());
  expect(new Set(stored.map(({ id }) => id)).size).toBe(stored.length);

  const committed = stored.sort((a, b) => (a.position < b.position ? -1 : 1));
  for (const { source, seen } of views) {
    const wanted = committed
      .filter(({ stream }) =>
        'stream' in source
          ? stream === source.stream
          : source.prefixes.some((prefix) => stream.startsWith(prefix)),
      )
      .map(place);
    const complete = () => seen.length >= wanted.length;
    // What is missing says more than that something is.
    await until(complete, { timeoutMs: 20_000 }).catch(() => undefined);
    expect(seen.map(place)).toEqual(wanted);
  }
  subscribersStop.abort();
  await Promise.all(views.map(({ ended }) => ended));
  for (const store of stores) await store.close();
}, 120_000);
