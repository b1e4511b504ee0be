/** A figure that the sandbox does not tell is null. What it tells comes from inside it: numbers, or nothing. */
export function statsJson(
  { sessionId, epoch }: { readonly sessionId: string; readonly epoch: number },
  answer: unknown,
  at: number,
) {
  const told: Readonly<Record<string, unknown>> =
    typeof answer === 'object' && answer !== null ? { ...answer } : {};
  const number = (name: string): number | null => {
    const value = told[name];
    return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
  };
  const milliseconds = (name: string): number | null => {
    const us = number(name);
    return us === null ? null : Math.floor(us / 1000);
  };
  return {
    sessionId,
    epoch,
    at: new Date(at).toISOString(),
    uptimeMs: milliseconds('uptimeUs'),
    runningExecs: number('runningExecs'),
    cpu: { usedMs: milliseconds('cpuUs') },
    memory: {
      bytes: number('memoryBytes'),
      cacheBytes: number('memoryCacheBytes'),
      peakBytes: number('memoryPeakBytes'),
      limitBytes: number('memoryLimitBytes'),
      kills: number('oomKills'),
    },
    processes: { count: number('pids'), limit: number('pidsLimit') },
    disk: { usedBytes: number('diskUsedBytes'), totalBytes: number('diskTotalBytes') },
  };
}
