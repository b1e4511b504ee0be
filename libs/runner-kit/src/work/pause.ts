import { setTimeout as sleep } from 'node:timers/promises';

/** Waits, and throws at once when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal });
}
