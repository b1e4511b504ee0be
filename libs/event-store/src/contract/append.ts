import { randomBytes, randomUUID } from 'node:crypto';
import { AppendTooLarge, StoreRefused, StreamDeleted, WrongRevision } from '../errors';
import type { Appended, NewEvent } from '../port';
import {
  all,
  type Bench,
  event,
  events,
  ids,
  itIf,
  numbers,
  type Permissions,
  revisions,
} from './tools';

export function appendContract(bench: Bench, { hasPassword }: Permissions): void {
  describe('appending', () => {
    it('numbers a stream from 0 without gaps, whatever the kind of expected revision', async () => {
      const stream = bench.stream();
      const [a, b, c] = [events(1), events(3), events(2)];
      const first = await bench.store.append(stream, 'none', a);
      const second = await bench.store.append(stream, 0, b);
      const third = await bench.store.append(stream, 'any', c);
      expect([first.revision, second.revision, third.revision]).toEqual([0, 3, 5]);
      expect(first.position < second.position && second.position < third.position).toBe(true);
      const read = await all(bench.store.read(stream));
      expect(ids(read)).toEqual(ids([...a, ...b, ...c]));
      expect(revisions(read)).toEqual(numbers(6));
      expect(read.at(-1)?.position).toBe(third.position);
    });

    it('starts a stream at any revision too', async () => {
      const stream = bench.stream();
      expect((await bench.store.append(stream, 'any', events(1))).revision).toBe(0);
    });

    it('refuses another revision than the stream is at, says which it is, and stores nothing', async () => {
      const stream = bench.stream();
      const conflict = async (expected: number | 'none', actual: number | 'none') => {
        const fault = await bench.store.append(stream, expected, events(2)).catch((e) => e);
        expect(fault).toBeInstanceOf(WrongRevision);
        expect(fault).toMatchObject({ code: 'wrong_revision', stream, expected, actual });
      };
      await conflict(0, 'none');
      await bench.store.append(stream, 'none', events(3));
      await conflict('none', 2);
      await conflict(1, 2);
      await conflict(3, 2);
      expect(await all(bench.store.read(stream))).toHaveLength(3);
    });

    it('lets exactly one of many win at the same revision', async () => {
      const stream = bench.stream();
      await bench.store.append(stream, 'none', events(1));
      const attempts = numbers(20).map((n) => bench.store.append(stream, 0, [event({ n })]));
      const outcomes = await Promise.allSettled(attempts);
      const lost = outcomes.flatMap((outcome) =>
        outcome.status === 'rejected' ? [outcome.reason] : [],
      );
      expect(lost).toHaveLength(19);
      for (const fault of lost) expect(fault).toBeInstanceOf(WrongRevision);
      expect(await all(bench.store.read(stream))).toHaveLength(2);
    });

    it('takes a repeat with the same ids for the same append', async () => {
      const stream = bench.stream();
      const [a, b, c] = [events(2), events(2), events(2)];
      const once: Appended[] = [];
      const append = async () => [
        await bench.store.append(stream, 'none', a),
        await bench.store.append(stream, 1, b),
        await bench.store.append(stream, 'any', c),
      ];
      once.push(...(await append()));
      const again = await append();
      expect(again.map(({ revision }) => revision)).toEqual([1, 3, 5]);
      expect(ids(await all(bench.store.read(stream)))).toEqual(ids([...a, ...b, ...c]));
    });

    it('does not take other events at an old revision for a repeat', async () => {
      const stream = bench.stream();
      const [a, b]: NewEvent[] = events(2);
      if (!a || !b) throw new Error('two events are needed');
      await bench.store.append(stream, 'none', [a, b]);
      const half = bench.store.append(stream, 'none', [a, event({ other: true })]);
      await expect(half).rejects.toBeInstanceOf(WrongRevision);
      const longer = bench.store.append(stream, 'none', [a, b, event({ other: true })]);
      await expect(longer).rejects.toBeInstanceOf(WrongRevision);
      expect(ids(await all(bench.store.read(stream)))).toEqual([a.id, b.id]);
    });

    it('keeps bytes exactly', async () => {
      const stream = bench.stream();
      const every = Uint8Array.from({ length: 256 }, (_, n) => n);
      const samples = [every, new Uint8Array(), Buffer.from('{"not":"json'), randomBytes(65_536)];
      await bench.store.append(
        stream,
        'none',
        samples.map((data) => event(data)),
      );
      const read = await all(bench.store.read(stream));
      for (const [n, { data }] of read.entries()) {
        expect(Buffer.isBuffer(data)).toBe(true);
        expect(Buffer.compare(data as Buffer, samples[n] ?? every)).toBe(0);
      }
      expect(read).toHaveLength(samples.length);
    });

    it('keeps objects, metadata, types and names in any script', async () => {
      const stream = `${bench.stream()}-naïve-書-🦊`;
      const data = {
        text: 'Grüße, 世界 🌍 \u0000 "',
        nested: [1, null, { deep: true }],
        big: 2 ** 53,
      };
      const metadata = { key: 'clé', list: ['𝒳'] };
      const told: NewEvent = { id: randomUUID(), type: 'Événement', data, metadata };
      const beforeMs = Date.now();
      await bench.store.append(stream, 'none', [told]);
      const [read] = await all(bench.store.read(stream));
      expect(read).toMatchObject({ ...told, stream, revision: 0 });
      expect(Math.abs((read?.recordedAt.getTime() ?? 0) - beforeMs)).toBeLessThan(3_600_000);
    });

    it('refuses an append that is too large without harm to others', async () => {
      const stream = bench.stream();
      const large = event(randomBytes(1024 * 1024 + 1));
      await expect(bench.store.append(stream, 'none', [large])).rejects.toBeInstanceOf(
        AppendTooLarge,
      );
      const limit = bench.server.maxAppendBytes;
      if (limit !== undefined) {
        const unbound = bench.connect({ maxAppendBytes: Number.MAX_SAFE_INTEGER });
        const [refused, small] = await Promise.allSettled([
          unbound.append(stream, 'any', [event(randomBytes(limit + 1))]),
          unbound.append(stream, 'any', events(1)),
        ]);
        expect(refused).toMatchObject({ reason: { code: 'append_too_large', maxBytes: limit } });
        expect(small).toMatchObject({ status: 'fulfilled' });
      } else await bench.store.append(stream, 'any', events(1));
      expect(await all(bench.store.read(stream))).toHaveLength(1);
    });

    it('refuses what makes no sense', async () => {
      const stream = bench.stream();
      const nothing = bench.store.append(stream, 'any', []);
      await expect(nothing).rejects.toMatchObject({ code: 'store_refused', reason: 'invalid' });
      const badId = { id: 'not-a-uuid', type: 'Happened', data: {} };
      await expect(bench.store.append(stream, 'any', [badId])).rejects.toBeInstanceOf(StoreRefused);
    });

    it('knows a stream that was deleted for ever', async () => {
      const stream = bench.stream();
      await bench.store.append(stream, 'none', events(1));
      await bench.vendor((client) => client.tombstoneStream(stream));
      const appending = bench.store.append(stream, 'any', events(1));
      await expect(appending).rejects.toBeInstanceOf(StreamDeleted);
      await expect(all(bench.store.read(stream))).rejects.toBeInstanceOf(StreamDeleted);
      await expect(all(bench.store.subscribe({ stream }))).rejects.toBeInstanceOf(StreamDeleted);
    });

    const itWithPassword = itIf(hasPassword, 'the server has no password');
    itWithPassword('refuses a wrong password on every verb', async () => {
      const stranger = bench.connect({ url: bench.server.url.replace(/:[^:@/]+@/, ':wrong@') });
      const stream = bench.stream();
      const denied = { code: 'store_refused', reason: 'access_denied' };
      await expect(stranger.append(stream, 'any', events(1))).rejects.toMatchObject(denied);
      await expect(all(stranger.read(stream))).rejects.toMatchObject(denied);
      await expect(all(stranger.subscribe({ stream }))).rejects.toMatchObject(denied);
    });
  });
}
