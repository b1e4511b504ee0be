import { ranMsOf } from './session-cost';
import type { SessionView } from './session-view';

const MiB_OF_A_GiB = 1024;

/**
 * What a session has used so far: processor, peaks and bytes of its execs that have ended, and the memory that
 * its sandboxes were given for as long as they were there, asleep or not.
 */
export function usageJson(view: SessionView, now: number) {
  const used = { cpuMs: 0, peakMemoryBytes: 0, readBytes: 0, writtenBytes: 0, outputBytes: 0 };
  for (const { usage, sizes } of view.execs.values()) {
    used.cpuMs += usage?.cpuMs ?? 0;
    used.readBytes += usage?.readBytes ?? 0;
    used.writtenBytes += usage?.writtenBytes ?? 0;
    used.peakMemoryBytes = Math.max(used.peakMemoryBytes, usage?.peakMemoryBytes ?? 0);
    used.outputBytes += (sizes?.stdout ?? 0) + (sizes?.stderr ?? 0) + (sizes?.pty ?? 0);
  }
  const { cpuMs, ...bytes } = used;
  const sandboxSeconds = Object.values(ranMsOf(view, now)).reduce((sum, ms) => sum + ms, 0) / 1000;
  const gib = (view.spec?.resources.memoryMiB ?? 0) / MiB_OF_A_GiB;
  return {
    cpuSeconds: cpuMs / 1000,
    memoryGibSeconds: rounded(sandboxSeconds * gib),
    sandboxSeconds: rounded(sandboxSeconds),
    ...bytes,
  };
}

const rounded = (value: number): number => Math.round(value * 1000) / 1000;
