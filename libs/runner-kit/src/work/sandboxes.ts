import { randomUUID } from 'node:crypto';
import { Refusal } from '@vmux/events';
import type { SandboxDriver, SandboxId, SandboxRecord } from '../driver';
import { pause } from './pause';
import type { Reporter } from './reporter';
import type { RunnerJournal } from './runner-journal';
import { type Ended, SandboxWorker } from './sandbox-worker';
import type { Setup } from './setup';

export type Log = (message: string, facts?: Readonly<Record<string, unknown>>) => void;

export interface SandboxesSettings {
  readonly drivers: readonly SandboxDriver[];
  readonly reporter: Reporter;
  readonly journal: RunnerJournal;
  readonly setup?: Setup;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export interface Held {
  readonly id: SandboxId;
  readonly driver: SandboxDriver;
  readonly worker: SandboxWorker;
}

/** The sandboxes of this runner: found again after a restart, followed, and cleaned up when they end. */
export class Sandboxes {
  private readonly held = new Map<string, Held>();
  private readonly ending = new Set<Promise<void>>();
  private readonly listed = new Set<SandboxDriver>();

  constructor(private readonly settings: SandboxesSettings) {
    for (const driver of settings.drivers)
      driver.onEnding?.((id, endsAtMs) => void this.tellEnding(id, endsAtMs));
  }

  get count(): number {
    return this.held.size;
  }

  find(sessionId: string, epoch: number): Held | undefined {
    return this.held.get(keyOf({ sessionId, epoch }));
  }

  get drivers(): readonly SandboxDriver[] {
    return this.settings.drivers;
  }

  driverOf(provider: string): SandboxDriver | undefined {
    return this.settings.drivers.find((driver) => driver.provider === provider);
  }

  /** True once every driver has said what it holds: only then is a sandbox that was not found not there. */
  get allKnown(): boolean {
    return this.settings.drivers.every((driver) => this.listed.has(driver));
  }

  /** As `allKnown` for one provider: another one that does not answer holds up none of its sessions. */
  isKnown(provider: string): boolean {
    const driver = this.driverOf(provider);
    return driver === undefined || this.listed.has(driver);
  }

  /** Takes up every sandbox that is still there; a driver that does not answer now is asked by a later call. */
  async adoptAll(): Promise<void> {
    if (this.allKnown) return;
    for (const driver of this.settings.drivers) {
      if (this.listed.has(driver) || !(await driver.capabilities()).available) continue;
      for (const record of await driver.list()) await this.adopt(driver, record);
      this.listed.add(driver);
    }
    if (this.allKnown)
      await this.settings.journal.keepOnly(() => [...this.held.values()].map(({ id }) => id));
  }

  /** Follows a sandbox that exists. */
  hold(id: SandboxId, driver: SandboxDriver): Held {
    const known = this.held.get(keyOf(id));
    if (known) return known;
    const { reporter, setup, log } = this.settings;
    const worker = new SandboxWorker({ id, driver, reporter, setup, log });
    const held = { id, driver, worker };
    this.held.set(keyOf(id), held);
    const ended = worker.ended
      .then((how) => this.conclude(held, how))
      .catch((error) => log('a sandbox could not be concluded', { ...id, error: String(error) }))
      .finally(() => this.ending.delete(ended));
    this.ending.add(ended);
    return held;
  }

  /** A name for a new one: never used before, so that nothing of an earlier try is taken for it. */
  newId(sessionId: string, epoch: number): SandboxId {
    return { sessionId, epoch, instance: randomUUID() };
  }

  async destroy({ id, driver, worker }: Held): Promise<void> {
    await worker.stop();
    try {
      await driver.destroy(id);
    } catch (error) {
      // It is there until it is destroyed: one that nobody holds would be said to be released.
      this.hold(id, driver);
      throw error;
    }
    await this.settings.journal.forget(id);
    this.held.delete(keyOf(id));
  }

  /**
   * Destroys what may be there of one that could not be made: a driver that was cut off while it made it
   * cannot tell, or could not remove it, and nobody else knows of it.
   */
  clearAway(id: SandboxId, driver: SandboxDriver): void {
    const { log, signal } = this.settings;
    const cleared = this.untilDestroyed(id, driver)
      .catch((error) => {
        // The next runner finds it: it lists what there is, and destroys what nobody knows of.
        if (!signal.aborted) log('a half-made sandbox is left', { ...id, error: String(error) });
      })
      .finally(() => this.ending.delete(cleared));
    this.ending.add(cleared);
  }

  /** Lets go of all of them; they go on. */
  async close(): Promise<void> {
    await Promise.all([...this.held.values()].map(({ worker }) => worker.stop()));
    await Promise.all(this.ending);
  }

  private async adopt(driver: SandboxDriver, { id, probe }: SandboxRecord): Promise<void> {
    const prepared = await this.settings.journal.isPrepared(id);
    if (probe.state === 'gone' && !prepared) {
      // It was never reported ready, so nobody knows of it: its order comes again.
      await driver.destroy(id);
      return;
    }
    this.settings.log('adopted a sandbox', { ...id, state: probe.state });
    this.hold(id, driver);
  }

  private async conclude(held: Held, ended: Ended): Promise<void> {
    const { id, driver } = held;
    if (ended.how === 'stopped') {
      this.held.delete(keyOf(id));
      return;
    }
    this.settings.log(`a sandbox is ${ended.how}`, { ...id, ...ended });
    if (ended.how === 'lost') await this.reportLost(id, ended.evidence);
    this.held.delete(keyOf(id));
    await this.untilDestroyed(id, driver);
    await this.settings.journal.forget(id);
  }

  /** The session is stored before that, and goes on elsewhere. */
  private async tellEnding(id: SandboxId, endsAtMs: number): Promise<void> {
    const { log, signal } = this.settings;
    log('a sandbox is going to be ended by its provider', { ...id, endsAtMs });
    const data = { endsAt: Math.floor(endsAtMs) };
    // It may not be the session's yet: a driver knows when it ends before it has begun.
    for (let pauseMs = 500; Date.now() < endsAtMs; pauseMs = Math.min(2 * pauseMs, 10_000)) {
      const held = this.held.get(keyOf(id));
      try {
        await held?.worker.report({ type: 'LifetimeKnown', at: Date.now(), data });
        if (held) return;
      } catch (error) {
        log('nobody heard of that', { ...id, error: String(error) });
      }
      await pause(pauseMs, signal).catch(() => undefined);
      if (signal.aborted) return;
    }
  }

  private async reportLost(id: SandboxId, evidence: string): Promise<void> {
    const message = evidence.slice(0, 1000);
    try {
      await this.settings.reporter.report(
        {
          type: 'SandboxLost',
          ...id,
          at: Date.now(),
          data: { evidence: { kind: 'probe', message } },
        },
        this.settings.signal,
      );
    } catch (error) {
      // Refused: the history has moved on without it.
      if (!(error instanceof Refusal)) throw error;
      this.settings.log('nobody misses a lost sandbox', { ...id, reason: error.message });
    }
  }

  private async untilDestroyed(id: SandboxId, driver: SandboxDriver): Promise<void> {
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, 10_000)) {
      try {
        await driver.destroy(id);
        return;
      } catch (error) {
        this.settings.log('a sandbox cannot be destroyed yet', { ...id, error: String(error) });
        await pause(pauseMs, this.settings.signal);
      }
    }
  }
}

const keyOf = ({ sessionId, epoch }: Pick<SandboxId, 'sessionId' | 'epoch'>) =>
  `${sessionId}/${epoch}`;
