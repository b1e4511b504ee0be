import type { Figures } from '../supervisor-answers';
import { pause } from './pause';

export interface CpuReport {
  readonly type: 'ActivityObserved';
  readonly at: number;
  readonly data: { readonly activity: 'cpu' };
}

const LOOK_EVERY_MS = 5_000;
/** Of one processor: what waits for something uses less. */
const BUSY = 0.05;

/**
 * Says that a sandbox works, whatever started what works in it, so that it is not taken for idle. A frozen
 * sandbox does not answer until it goes on.
 */
export async function followCpu(
  look: () => Promise<Figures>,
  signal: AbortSignal,
  report: (report: CpuReport) => Promise<void>,
): Promise<void> {
  for (let before: { readonly atMs: number; readonly cpuUs: number } | undefined; ; ) {
    await pause(LOOK_EVERY_MS, signal);
    const { cpuUs } = await look();
    if (cpuUs === undefined) continue;
    const now = { atMs: performance.now(), cpuUs };
    const isBusy = before && isAbove(before, now);
    before = now;
    if (isBusy)
      await report({ type: 'ActivityObserved', at: Date.now(), data: { activity: 'cpu' } });
  }
}

const isAbove = (
  before: { readonly atMs: number; readonly cpuUs: number },
  now: { readonly atMs: number; readonly cpuUs: number },
): boolean => (now.cpuUs - before.cpuUs) / 1000 > BUSY * (now.atMs - before.atMs);
