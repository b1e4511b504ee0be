import { setTimeout as sleep } from 'node:timers/promises';
import { type Capability, type Placement, Refusal, type Resources } from '@vmux/events';
import { type Wanted, wantedSandbox } from '../domain/consequences';
import type { Living } from '../domain/state';
import type { Runners } from './runners';

/** A process that has just started has not heard every runner yet. */
const LISTEN_FIRST_MS = 6_000;
const LOOK_EVERY_MS = 50;

/** Which runner a sandbox goes to. A hint: the decision and its event make it a fact. */
export class Placing {
  constructor(
    private readonly runners: Runners,
    private readonly now: () => number,
    private readonly startedAt: number = now(),
  ) {}

  forNew(provider: string, resources: Resources): Promise<Placement | null> {
    return this.heard(
      () =>
        this.runners.place({ provider, capabilities: needs(resources) }) ??
        // Without the capability it is refused for that, not for want of a runner.
        this.runners.place({ provider, capabilities: [] }),
    );
  }

  /** Refuses what would wait for a runner that is not there. */
  async expectOffered(provider: string): Promise<void> {
    if (await this.heard(() => this.runners.isOffered(provider) || null)) return;
    throw new Refusal('no_placement', `no runner offers ${provider} now: start one`, { provider });
  }

  /** Whether a runner is there for the sandbox that is wanted; it is not taken yet. */
  isPossible(session: Living): boolean {
    const wanted = wantedSandbox(session);
    if (!wanted) return false;
    if (wanted.operation.kind === 'rollback' && session.current) return true;
    const capabilities = needs(session.spec.resources);
    return this.runners.find({ provider: wanted.provider, capabilities }) !== null;
  }

  forWanted(session: Living, { provider, operation }: Wanted): Placement | null {
    const except = operation.kind === 'move' ? session.current?.runnerId : undefined;
    const capabilities = needs(session.spec.resources);
    return (
      this.runners.place({ provider, capabilities, except }) ??
      this.runners.place({ provider, capabilities })
    );
  }

  /** What is looked for among the runners; whoever has just started listens for a while first. */
  private async heard<T>(look: () => T | null): Promise<T | null> {
    for (;;) {
      const found = look();
      if (found !== null || this.now() - this.startedAt > LISTEN_FIRST_MS) return found;
      await sleep(LOOK_EVERY_MS);
    }
  }
}

const needs = ({ gpu }: Resources): readonly Capability[] => (gpu === null ? [] : ['gpu']);
