import { Refusal } from '@vmux/events';
import type { SandboxDriver } from '../driver';
import type { Reporter } from './reporter';
import type { Log } from './sandboxes';

export interface LeftoversSettings {
  readonly drivers: readonly SandboxDriver[];
  readonly reporter: Reporter;
  readonly forget: (sessionId: string) => Promise<void>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** No sandbox: what it says is about what is kept beside them. */
const NOBODY = { epoch: 1, instance: 'leftovers' } as const;

/**
 * What this runner keeps for sessions that were deleted while nobody could tell it. Only the word that a
 * session was deleted ends it: one that is not known here or now may be known elsewhere or later.
 */
export class Leftovers {
  constructor(private readonly settings: LeftoversSettings) {}

  async collect(): Promise<void> {
    const { drivers, log, signal } = this.settings;
    for (const driver of drivers) {
      if (!driver.checkpoints || !(await driver.capabilities({ signal })).available) continue;
      const kept = await driver.checkpoints({ signal });
      for (const sessionId of new Set(kept.map((each) => each.sessionId))) {
        if (!(await this.isDeleted(sessionId))) continue;
        await this.settings.forget(sessionId);
        log('dropped the checkpoints of a deleted session', { sessionId });
      }
    }
  }

  private async isDeleted(sessionId: string): Promise<boolean> {
    const { reporter, signal } = this.settings;
    try {
      const at = Date.now();
      await reporter.report(
        { type: 'CheckpointsHeld', sessionId, ...NOBODY, at, data: {} },
        signal,
      );
      return false;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return error.code === 'session_deleted';
    }
  }
}
