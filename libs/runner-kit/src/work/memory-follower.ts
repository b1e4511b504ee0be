import type { Figures } from '../supervisor-answers';
import { pause } from './pause';

export interface MemoryReport {
  readonly type: 'LimitExceeded';
  readonly at: number;
  readonly data: {
    readonly limit: 'memory';
    readonly level: 'warning';
    readonly value: number;
    readonly max: number;
    readonly execId: null;
  };
}

const LOOK_EVERY_MS = 2_000;
const WARN_FROM = 0.9;
/** Below it the next approach is news again. */
const CALM_BELOW = 0.8;

/**
 * Warns before the kernel kills for want of memory. What it would rather give back than kill for, the
 * cache of files, does not count. What takes all of it between two looks is killed without a warning.
 */
export async function followMemory(
  look: () => Promise<Figures>,
  signal: AbortSignal,
  report: (report: MemoryReport) => Promise<void>,
  everyMs = LOOK_EVERY_MS,
): Promise<void> {
  for (let warned = false; ; ) {
    await pause(everyMs, signal);
    const { memoryBytes, memoryLimitBytes: max, memoryCacheBytes = 0 } = await look();
    if (memoryBytes === undefined || !max) continue;
    const value = Math.max(0, memoryBytes - memoryCacheBytes);
    if (value < CALM_BELOW * max) warned = false;
    if (warned || value < WARN_FROM * max) continue;
    warned = true;
    const data = { limit: 'memory', level: 'warning', value, max, execId: null } as const;
    await report({ type: 'LimitExceeded', at: Date.now(), data });
  }
}
