import { randomBytes } from 'node:crypto';
import { StreamNotFound } from '../errors';
import type { RecordedEvent } from '../port';
import { all, type Bench, event, events, ids, numbers, revisions, sleep } from './tools';

export function readContract(bench: Bench): void {
  describe('reading', () => {
    it('goes forwards and backwards, from any revision, up to a limit', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 10);
      const read = async (options: Parameters<typeof bench.store.read>[1]) =>
        revisions(await all(bench.store.read(stream, options)));
      expect(await read({})).toEqual(numbers(10));
      expect(await read({ from: 7 })).toEqual([7, 8, 9]);
      expect(await read({ from: 3, limit: 2 })).toEqual([3, 4]);
      expect(await read({ limit: 0 })).toEqual([]);
      expect(await read({ from: 10 })).toEqual([]);
      expect(await read({ from: 1000 })).toEqual([]);
      expect(await read({ direction: 'backwards' })).toEqual(numbers(10).reverse());
      expect(await read({ direction: 'backwards', limit: 1 })).toEqual([9]);
      expect(await read({ direction: 'backwards', from: 4, limit: 3 })).toEqual([4, 3, 2]);
      expect(await read({ direction: 'backwards', from: 2, limit: 100 })).toEqual([2, 1, 0]);
    });

    it('says that a stream was never there', async () => {
      const stream = bench.stream();
      await expect(all(bench.store.read(stream))).rejects.toBeInstanceOf(StreamNotFound);
      const backwards = all(bench.store.read(stream, { direction: 'backwards' }));
      await expect(backwards).rejects.toMatchObject({ code: 'stream_not_found', stream });
    });

    it('says that a deleted stream is not there until it is written again', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 3);
      await bench.vendor((client) => client.deleteStream(stream));
      await expect(all(bench.store.read(stream))).rejects.toBeInstanceOf(StreamNotFound);
      const { revision } = await bench.store.append(stream, 'any', events(1));
      expect(revision).toBe(3);
      expect(revisions(await all(bench.store.read(stream)))).toEqual([3]);
    });

    it('reads a long stream whole and in order', async () => {
      const stream = bench.stream();
      const written = await bench.fill(stream, 5_000, 200);
      const read = await all(bench.store.read(stream));
      expect(ids(read)).toEqual(ids(written));
      const back = await all(bench.store.read(stream, { direction: 'backwards' }));
      expect(ids(back)).toEqual(ids(written).reverse());
    });

    it('shows only the last events of a stream with a $maxCount, and none before its $tb', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 10);
      await bench.setMetadata(stream, { $maxCount: 3 });
      expect(revisions(await all(bench.store.read(stream)))).toEqual([7, 8, 9]);
      await bench.store.append(stream, 9, events(1));
      expect(revisions(await all(bench.store.read(stream)))).toEqual([8, 9, 10]);
      await bench.setMetadata(stream, { $tb: 10 });
      expect(revisions(await all(bench.store.read(stream)))).toEqual([10]);
      expect((await bench.store.append(stream, 10, events(1))).revision).toBe(11);
    });

    it('stops with the reason of its signal', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 2_000);
      const reason = new Error('enough');
      const stopping = new AbortController();
      const seen: RecordedEvent[] = [];
      const reading = async () => {
        for await (const one of bench.store.read(stream, { signal: stopping.signal })) {
          seen.push(one);
          if (seen.length === 3) stopping.abort(reason);
        }
      };
      await expect(reading()).rejects.toBe(reason);
      expect(seen).toHaveLength(3);
      const late = all(bench.store.read(stream, { signal: stopping.signal }));
      await expect(late).rejects.toBe(reason);
    });

    it('can be left early and begun again', async () => {
      const stream = bench.stream();
      await bench.fill(stream, 1_000);
      for (let round = 0; round < 20; round++) {
        for await (const { revision } of bench.store.read(stream)) {
          if (revision === 5) break;
        }
      }
      expect(await all(bench.store.read(stream))).toHaveLength(1_000);
    });

    it('takes from the connection no more than it may while its consumer rests', async () => {
      const stream = bench.stream();
      const [count, size] = [80, 1000 * 1024];
      const data = randomBytes(size);
      for (const n of numbers(count)) {
        await bench.store.append(stream, n === 0 ? 'none' : n - 1, [event(data)]);
      }
      const before = process.memoryUsage().arrayBuffers;
      let seen = 0;
      for await (const one of bench.store.read(stream)) {
        seen++;
        if (one.revision === 0) {
          await sleep(500);
          const grown = process.memoryUsage().arrayBuffers - before;
          expect(grown).toBeLessThan((count * size) / 2);
        }
      }
      expect(seen).toBe(count);
    });
  });
}
