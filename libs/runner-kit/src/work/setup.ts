import { deriveExecId, type OrderNamed, type Outcome, type SetupFound } from '@vmux/events';
import type { SandboxDriver, SandboxId } from '../driver';
import type { SupervisorClient } from '../supervisor-client';
import { workspaceOf } from './exec-facts';
import type { SetupCache } from './setup-cache';
import { type DetectedSetup, detectSetup } from './setup-detect';

const MAX_PLANS = 1024;

/** A sandbox that is there. */
interface Begun {
  readonly id: SandboxId;
  readonly driver: SandboxDriver;
  readonly worker: { client(): Promise<SupervisorClient> };
}

export interface SetupSettings {
  readonly cache: SetupCache | undefined;
  log(message: string, facts?: Readonly<Record<string, unknown>>): void;
}

export interface ReadySetup {
  readonly found: SetupFound;
  /** When what it asks for was there; null while it is still to be installed. */
  readonly installedAt: number | null;
}

/** Finds out what a new sandbox has to have installed, and takes it from an earlier session where it can. */
export class Setup {
  /** By instance: what is to be kept of a set-up that is under way. Forgotten by a restart, it is not kept. */
  private readonly plans = new Map<string, DetectedSetup>();

  constructor(private readonly settings: SetupSettings) {}

  async prepare(
    held: Begun,
    order: OrderNamed<'CreateSandbox'>,
    signal: AbortSignal,
  ): Promise<ReadySetup | undefined> {
    if (order.data.spec.setup !== 'auto') return undefined;
    const { id, driver, worker } = held;
    const client = await worker.client();
    const path = workspaceOf(held, order.data.spec.cwd);
    const detected = await detectSetup(client.files, order, path, signal);
    if (!detected) return undefined;
    const { found, cacheKey } = detected;
    if (cacheKey === null || driver.isolates === false || found.missingTools.length > 0)
      return { found, installedAt: null };
    if (await this.settings.cache?.restore(cacheKey, client.files, signal))
      return { found: { ...found, command: null }, installedAt: Date.now() };
    this.plans.set(id.instance, detected);
    for (const [oldest] of this.plans)
      if (this.plans.size > MAX_PLANS) this.plans.delete(oldest);
      else break;
    return { found, installedAt: null };
  }

  /** Keeps what a set-up installed, before any other exec can change it. */
  async conclude(
    id: SandboxId,
    client: SupervisorClient,
    execId: string,
    outcome: Outcome,
    signal: AbortSignal,
  ): Promise<void> {
    const { cache, log } = this.settings;
    if (execId !== deriveExecId(id.sessionId, 'setup', String(id.epoch))) return;
    const plan = this.plans.get(id.instance);
    this.plans.delete(id.instance);
    if (!cache || !plan?.cacheKey || outcome.kind !== 'exited' || outcome.code !== 0) return;
    const { cacheKey, outputs } = plan;
    try {
      const kept = await cache.store(cacheKey, outputs, client.files, signal);
      log(kept ? 'a set-up is kept' : 'a set-up is not kept', { ...id, cacheKey });
    } catch (error) {
      // The next session installs it again: that is all that is lost.
      log('a set-up cannot be kept', { ...id, error: String(error) });
    }
  }
}
