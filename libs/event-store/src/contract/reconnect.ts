import { StoreUnavailable, WrongRevision } from '../errors';
import type { RecordedEvent } from '../port';
import {
  all,
  type Bench,
  Collector,
  event,
  events,
  ids,
  itIf,
  numbers,
  type Permissions,
  revisions,
} from './tools';

export function reconnectContract(bench: Bench, { mayBeKilled }: Permissions): void {
  const crash = async () => {
    const { kill, restart } = bench.server;
    if (!kill || !restart) throw new Error('this server must not be killed');
    await kill();
    return restart;
  };
  const itMayKill = itIf(mayBeKilled, 'this server must not be killed');

  describe('when the server is killed and comes back', () => {
    itMayKill('a subscription goes on without a gap or a repeat', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 100);
      const one = new Collector((signal) => bench.store.subscribe({ stream }, signal));
      const prefixes = [stream];
      const many = new Collector((signal) => bench.store.subscribe({ prefixes }, signal));
      await Promise.all([one.untilCaughtUp(), many.untilCaughtUp()]);
      for (let expected = 99; expected < 103; expected++) {
        const restart = await crash();
        await restart();
        await bench.store.append(stream, expected, events(1));
      }
      await Promise.all([one.untilEvents(104), many.untilEvents(104)]);
      expect(revisions(one.events)).toEqual(numbers(104));
      expect(revisions(many.events)).toEqual(numbers(104));
      await Promise.all([one.stop(), many.stop()]);
    });

    itMayKill(
      'a read goes on from where it was, forwards and backwards, within its limit',
      async () => {
        const stream = bench.stream();
        await bench.fill(stream, 6_000, 500);
        for (const direction of ['forwards', 'backwards'] as const) {
          const seen: RecordedEvent[] = [];
          for await (const one of bench.store.read(stream, { direction, limit: 5_000 })) {
            if (seen.push(one) === 10) await (await crash())();
          }
          const expected =
            direction === 'forwards' ? numbers(5_000) : numbers(5_000, 1_000).reverse();
          expect(revisions(seen)).toEqual(expected);
        }
      },
    );

    itMayKill('appends made meanwhile are stored once, and a real conflict stays one', async () => {
      const [stream, any, stale] = [bench.stream(), bench.stream(), bench.stream()];
      await bench.store.append(stream, 'none', events(1));
      await bench.store.append(stale, 'none', events(2));
      const [exact, free] = [events(2), events(2)];
      const restart = await crash();
      const appending = [
        bench.store.append(stream, 0, exact),
        bench.store.append(any, 'any', free),
      ];
      const conflict = bench.store.append(stale, 0, events(1)).catch((fault) => fault);
      await restart();
      expect((await Promise.all(appending)).map(({ revision }) => revision)).toEqual([2, 1]);
      const fault = await conflict;
      expect(fault).toBeInstanceOf(WrongRevision);
      expect(fault).toMatchObject({ expected: 0, actual: 1 });
      expect(ids(await all(bench.store.read(stream, { from: 1 })))).toEqual(ids(exact));
      expect(ids(await all(bench.store.read(any)))).toEqual(ids(free));
    });

    itMayKill(
      'an append that gives up can be repeated, and a read that gives up says so',
      async () => {
        const hasty = bench.connect({ timeoutMs: 300 });
        const stream = bench.stream();
        await hasty.append(stream, 'none', events(1));
        const restart = await crash();
        const told = [event({ once: true })];
        await expect(hasty.append(stream, 0, told)).rejects.toBeInstanceOf(StoreUnavailable);
        await expect(all(hasty.read(stream))).rejects.toBeInstanceOf(StoreUnavailable);
        await restart();
        const patient = await bench.store.append(stream, 0, told);
        const again = await bench.store.append(stream, 0, told);
        expect([patient.revision, again.revision]).toEqual([1, 1]);
        expect(await all(bench.store.read(stream))).toHaveLength(2);
      },
    );
  });
}
