import { LargeTree, ScanRoom } from '../src/work/scan-room';
import { Turns } from '../src/work/turns';

const { signal } = new AbortController();
const moment = () => new Promise((resolve) => setImmediate(resolve));

/** Work that goes on until it is let go, and how much of it there was at once. */
function workers() {
  const ends: (() => void)[] = [];
  const seen = { now: 0, most: 0, began: 0 };
  const work = async () => {
    seen.began++;
    seen.most = Math.max(seen.most, ++seen.now);
    await new Promise<void>((resolve) => ends.push(resolve));
    seen.now--;
  };
  return { seen, work, letGo: () => ends.shift()?.() };
}

describe('Turns', () => {
  it('are taken by so many at once, and the others follow in order', async () => {
    const turns = new Turns(2, 60_000);
    const { seen, work, letGo } = workers();
    const order: number[] = [];
    const all = [0, 1, 2, 3, 4].map((at) => turns.run(work, signal).then(() => order.push(at)));
    for (let left = 5; left > 0; left--) {
      await moment();
      expect(seen.now).toBe(Math.min(2, left));
      letGo();
    }
    await Promise.all(all);
    expect(order).toEqual([0, 1, 2, 3, 4]);
    expect(seen.most).toBe(2);
  });

  it('are given up by whoever waits too long or is told to, and by work that fails', async () => {
    const turns = new Turns(1, 20);
    const { work, letGo } = workers();
    const first = turns.run(work, signal);
    await expect(turns.run(work, signal)).rejects.toMatchObject({ code: 'driver_unavailable' });
    const gone = new AbortController();
    const second = turns.run(work, gone.signal);
    gone.abort(new Error('gone'));
    await expect(second).rejects.toThrow('gone');
    letGo();
    await first;
    await expect(turns.run(() => Promise.reject(new Error('it')), signal)).rejects.toThrow('it');
    expect(await turns.run(async () => 'mine', signal)).toBe('mine');
  });
});

describe('The room for trees', () => {
  const settings = { smallBytes: 10, smallAtOnce: 3, largeBytes: 1000, largeAtOnce: 1 };

  it('lets a tree that turns out large begin again alone, while small ones go on', async () => {
    const room = new ScanRoom(settings);
    const { seen, work, letGo } = workers();
    const large = async (maxScanBytes: number) => {
      if (maxScanBytes < 1000) throw new LargeTree('too large');
      await work();
    };
    const all = [1, 2, 3, 4].map(() => room.run(large, signal));
    await moment();
    expect(seen.now).toBe(1);
    expect(await room.run(async (maxScanBytes) => maxScanBytes, signal)).toBe(10);
    for (let left = 4; left > 0; left--) {
      letGo();
      await moment();
    }
    await Promise.all(all);
    expect(seen).toMatchObject({ most: 1, began: 4 });
  });

  it('is given at once to a tree that was large before', async () => {
    const room = new ScanRoom(settings);
    const given: number[] = [];
    const work = async (maxScanBytes: number) => given.push(maxScanBytes);
    for (const expectedBytes of [0, 10, 11]) await room.run(work, signal, expectedBytes);
    expect(given).toEqual([10, 10, 1000]);
  });

  it('is not held by a sandbox that never comes to an end', async () => {
    const room = new ScanRoom({ ...settings, smallAtOnce: 1, longestMs: 20 });
    const endless = (_: number, until: AbortSignal) =>
      new Promise<never>((_resolve, reject) =>
        until.addEventListener('abort', () => reject(until.reason)),
      );
    const first = room.run(endless, signal);
    const second = room.run(async () => 'next', signal);
    await expect(first).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(await second).toBe('next');
  });
});
