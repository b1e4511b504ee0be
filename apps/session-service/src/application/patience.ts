import { setTimeout as sleep } from 'node:timers/promises';

/** Shorter than a client waits for its answer. */
const PATIENCE_MS = 4000;
const LONGEST_PAUSE_MS = 50;

/**
 * How long conflicts with other processes are borne. Whoever conflicts again and again does so with
 * somebody who does the same, so the pauses grow and are left to chance.
 */
export class Patience {
  private readonly until = Date.now() + PATIENCE_MS;
  private conflicts = 0;

  get isOver(): boolean {
    return Date.now() > this.until;
  }

  async afterConflict(): Promise<void> {
    this.conflicts += 1;
    if (this.conflicts > 1)
      await sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, 2 ** this.conflicts));
  }
}
