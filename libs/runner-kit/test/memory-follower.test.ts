import type { Figures } from '../src/index';
import { followMemory, type MemoryReport } from '../src/work/memory-follower';

const GIB = 1024 ** 3;

/** Looks at these in turn, then stops. */
async function warnings(figures: readonly Figures[]): Promise<MemoryReport[]> {
  const reports: MemoryReport[] = [];
  const stop = new AbortController();
  const left = [...figures];
  const look = async () => {
    const next = left.shift();
    if (next) return next;
    stop.abort(new Error('no more'));
    return {};
  };
  const followed = followMemory(look, stop.signal, async (one) => void reports.push(one), 1);
  await expect(followed).rejects.toThrow('aborted');
  return reports;
}

const using = (share: number, memoryCacheBytes = 0): Figures => ({
  memoryBytes: Math.round(share * GIB) + memoryCacheBytes,
  memoryLimitBytes: GIB,
  memoryCacheBytes,
});

describe('A sandbox that nears its memory', () => {
  it('is warned of once, and again after it was calm', async () => {
    const seen = await warnings([0.5, 0.91, 0.95, 0.85, 0.92, 0.7, 0.93].map((at) => using(at)));
    expect(seen.map(({ data }) => [data.level, data.max])).toEqual([
      ['warning', GIB],
      ['warning', GIB],
    ]);
    expect(seen.map(({ data }) => Math.round((100 * data.value) / GIB))).toEqual([91, 93]);
  });

  it('is not warned of for what the kernel would give back', async () => {
    expect(await warnings([using(0.5, 0.49 * GIB)])).toEqual([]);
  });

  it('is not warned of where no limit is known', async () => {
    expect(await warnings([{ memoryBytes: GIB }, {}])).toEqual([]);
  });
});
