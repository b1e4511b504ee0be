import { setTimeout as sleep } from 'node:timers/promises';
import { Refusal } from '@vmux/events';
import type { RunnerBoard } from '../application/runner-board';

const HEARD_WITHIN_MS = 3_000;
const LOOK_EVERY_MS = 100;

/** Refuses what would wait for a runner that is not there; a gateway that just started listens first. */
export async function expectOffered(runners: RunnerBoard, wanted: string): Promise<void> {
  for (let waitedMs = 0; waitedMs <= HEARD_WITHIN_MS; waitedMs += LOOK_EVERY_MS) {
    const isOffered = runners
      .list()
      .some(
        ({ alive, heartbeat }) =>
          alive &&
          heartbeat.providers.some(({ provider, available }) => available && provider === wanted),
      );
    if (isOffered) return;
    await sleep(LOOK_EVERY_MS);
  }
  throw new Refusal('no_placement', `no runner offers ${wanted} now: start one`, {
    provider: wanted,
  });
}
