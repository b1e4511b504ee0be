import { MemoryKills } from '../src/work/memory-kills';

const killed = { kind: 'signalled', signal: 'SIGKILL' } as const;
const counting = (oomKills: number) => async () => ({
  ...{ oomKills, memoryPeakBytes: 70, memoryLimitBytes: 64 },
});
const reason = { peakBytes: 70, limitBytes: 64, certain: true };

describe('A kill for want of memory', () => {
  it('explains an end by signal, and the end of a shell that passes it on', async () => {
    const kills = new MemoryKills();
    kills.begin(counting(0));
    expect(await kills.reasonOf(killed, true, counting(1))).toEqual(reason);
    expect(await kills.reasonOf({ kind: 'exited', code: 137 }, true, counting(2))).toEqual(reason);
  });

  it('explains one end only, also when two are looked at together', async () => {
    const kills = new MemoryKills();
    kills.begin(counting(0));
    const both = [counting(1), counting(1)].map((figures) => kills.reasonOf(killed, true, figures));
    const told = await Promise.all(both);
    expect(told.filter((each) => each !== undefined)).toEqual([reason]);
    expect(await kills.reasonOf(killed, true, counting(1))).toBeUndefined();
  });

  it('explains nothing that was there before, nor an end of another kind', async () => {
    const kills = new MemoryKills();
    kills.begin(counting(3));
    expect(await kills.reasonOf(killed, true, counting(3))).toBeUndefined();
    expect(await kills.reasonOf({ kind: 'exited', code: 1 }, true, counting(4))).toBeUndefined();
  });

  it('may be somebody else’s when something else runs, or has ended since the last look', async () => {
    const kills = new MemoryKills();
    kills.begin(counting(0));
    expect(await kills.reasonOf(killed, false, counting(1))).toEqual({ ...reason, certain: false });
    await kills.reasonOf({ kind: 'exited', code: 0 }, true, counting(2));
    expect(await kills.reasonOf(killed, true, counting(2))).toEqual({ ...reason, certain: false });
  });

  it('that something outlived is not taken for the reason of a later end', async () => {
    jest.useFakeTimers();
    try {
      const kills = new MemoryKills();
      kills.begin(counting(0));
      await kills.reasonOf({ kind: 'exited', code: 0 }, true, counting(1));
      await jest.advanceTimersByTimeAsync(1_000);
      expect(await kills.reasonOf(killed, true, counting(1))).toBeUndefined();
      expect(await kills.reasonOf(killed, true, counting(2))).toEqual(reason);
    } finally {
      jest.useRealTimers();
    }
  });

  it('is looked for again after the pipe broke while it was counted', async () => {
    const kills = new MemoryKills();
    kills.begin(() => Promise.reject(new Error('the pipe broke')));
    await new Promise(setImmediate);
    expect(await kills.reasonOf(killed, true, counting(5))).toBeUndefined();
    kills.begin(counting(5));
    expect(await kills.reasonOf(killed, true, counting(6))).toEqual(reason);
  });
});
