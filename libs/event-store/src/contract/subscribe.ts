import type { RecordedEvent, SubscriptionItem } from '../port';
import { type Bench, Collector, event, events, ids, numbers, revisions, sleep } from './tools';

export function subscribeContract(bench: Bench): void {
  const follow = (stream: string, afterRevision?: number) =>
    new Collector((signal) => bench.store.subscribe({ stream, afterRevision }, signal));
  const followAll = (prefixes: string[], afterPosition?: bigint) =>
    new Collector((signal) => bench.store.subscribe({ prefixes, afterPosition }, signal));

  describe('subscribing', () => {
    it('delivers what is there, says that it has caught up, and goes on with what comes', async () => {
      const stream = bench.stream();
      const written = await bench.fill(stream, 300);
      const subscription = await follow(stream).untilCaughtUp();
      expect(ids(subscription.events)).toEqual(ids(written));
      const live = events(5);
      await bench.store.append(stream, 299, live);
      await subscription.untilEvents(305);
      expect(ids(subscription.events)).toEqual(ids([...written, ...live]));
      await subscription.stop();
    });

    it('begins after the given revision', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 10);
      const subscription = await follow(stream, 6).untilCaughtUp();
      expect(revisions(subscription.events)).toEqual([7, 8, 9]);
      await subscription.stop();
    });

    it('waits for a stream that does not exist yet', async () => {
      const stream = bench.stream();
      const subscription = await follow(stream).untilCaughtUp();
      await bench.store.append(stream, 'none', events(2));
      await subscription.untilEvents(2);
      expect(revisions(subscription.events)).toEqual([0, 1]);
      await subscription.stop();
    });

    it('follows every stream with one of the prefixes, in order of position, and no other', async () => {
      const [red, blue] = [bench.stream('red'), bench.stream('blue')];
      const streams = [`${red}-1`, `${blue}-1`, bench.stream('green'), `${red}-2`];
      const append = async () => {
        for (const stream of streams) await bench.store.append(stream, 'any', events(2));
      };
      await append();
      const subscription = await followAll([`${red}-`, `${blue}-`]).untilCaughtUp();
      await append();
      await subscription.untilEvents(12);
      const order = [`${red}-1`, `${blue}-1`, `${red}-2`].flatMap((name) => [name, name]);
      expect(subscription.events.map(({ stream }) => stream)).toEqual([...order, ...order]);
      expectGrowingPositions(subscription.events);
      await subscription.stop();

      const fifth = subscription.events[4];
      const rest = await followAll([`${red}-`, `${blue}-`], fifth?.position).untilEvents(7);
      expect(ids(rest.events)).toEqual(ids(subscription.events).slice(5));
      await rest.stop();
    });

    it('gives checkpoints to a reader of rare events, from which nothing is missed', async () => {
      const rare = bench.stream('rare');
      const subscription = await followAll([rare]).untilCaughtUp();
      await bench.fill(bench.stream('busy'), 2_000);
      const last = () => subscription.items.flatMap(checkpointIn).at(-1) ?? 0n;
      const { position } = await bench.store.append(bench.stream('mark'), 'none', events(1));
      const busy = bench.fill(bench.stream('busy'), 2_000);
      await subscription.until(() => last() > position);
      await busy;
      const checkpoint = last();
      expect(subscription.events).toEqual([]);
      const written = events(1);
      await bench.store.append(rare, 'none', written);
      const resumed = await followAll([rare], checkpoint).untilEvents(1);
      await subscription.untilEvents(1);
      expect(ids(subscription.events)).toEqual(ids(written));
      expect(ids(resumed.events)).toEqual(ids(written));
      await Promise.all([subscription.stop(), resumed.stop()]);
    });

    it('has no gap and no repeat where catching up turns into following, under writers', async () => {
      const prefix = bench.stream('seam');
      const [writers, appends] = [8, 60];
      const writing = numbers(writers).map(async (writer) => {
        for (const n of numbers(appends)) {
          const expected = n === 0 ? 'none' : n - 1;
          await bench.store.append(`${prefix}-${writer}`, expected, [event({ n })]);
        }
      });
      const subscriptions: Collector[] = [];
      for (const _ of numbers(10)) {
        subscriptions.push(followAll([`${prefix}-`]), follow(`${prefix}-0`));
        await sleep(15);
      }
      await Promise.all(writing);
      const [everything, one] = [writers * appends, appends];
      const order: string[] = [];
      for (const [n, subscription] of subscriptions.entries()) {
        await subscription.untilEvents(n % 2 === 0 ? everything : one);
        await subscription.stop();
        if (n % 2 === 1) {
          expect(revisions(subscription.events)).toEqual(numbers(one));
          continue;
        }
        expectGrowingPositions(subscription.events);
        if (order.length === 0) order.push(...ids(subscription.events));
        expect(ids(subscription.events)).toEqual(order);
        expect(new Set(order).size).toBe(everything);
      }
    });

    it('delivers everything to a slow consumer while others are fast', async () => {
      const stream = bench.stream();
      const slow = new Collector(
        (signal) => bench.store.subscribe({ stream }, signal),
        () => sleep(1),
      );
      const fast = follow(stream);
      const written = await bench.fill(stream, 1_500, 2_000);
      await fast.untilEvents(1_500);
      expect(slow.events.length).toBeLessThan(1_500);
      await slow.untilEvents(1_500);
      expect(ids(slow.events)).toEqual(ids(written));
      expect(ids(fast.events)).toEqual(ids(written));
      await Promise.all([slow.stop(), fast.stop()]);
    });

    it('goes on while much is under way in both directions', async () => {
      const streams = Array.from({ length: 12 }, () => bench.stream('both'));
      const followers = streams.map((stream) => follow(stream));
      await Promise.all(streams.map((stream) => bench.fill(stream, 1_000, 1_500)));
      for (const follower of followers) await follower.untilEvents(1_000);
      await Promise.all(followers.map((follower) => follower.stop()));
    });

    it('ends when its signal aborts, also while it waits', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 2);
      const waiting = await follow(stream).untilCaughtUp();
      await waiting.stop();
      const before = new AbortController();
      before.abort();
      const never = bench.store.subscribe({ stream }, before.signal)[Symbol.asyncIterator]();
      expect(await never.next()).toEqual({ done: true, value: undefined });
    });

    it('ends when the store is closed, and everything else of that store too', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 2);
      const other = bench.connect();
      const subscription = new Collector((signal) => other.subscribe({ stream }, signal));
      await subscription.untilCaughtUp();
      await other.close();
      await subscription.ended;
      const closed = { code: 'store_unavailable' };
      await expect(other.append(stream, 'any', events(1))).rejects.toMatchObject(closed);
      await expect(other.read(stream)[Symbol.asyncIterator]().next()).rejects.toMatchObject(closed);
      await other.close();
    });
  });
}

const checkpointIn = (item: SubscriptionItem): bigint[] =>
  item.kind === 'checkpoint' ? [item.position] : [];

function expectGrowingPositions(seen: readonly RecordedEvent[]): void {
  const positions = seen.map(({ position }) => position);
  expect(positions).toEqual([...positions].sort((a, b) => (a < b ? -1 : 1)));
  expect(new Set(positions).size).toBe(positions.length);
}
