import { setTimeout as sleep } from 'node:timers/promises';
import type { Capability, Placement, Resources } from '@vmux/events';
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

  async forNew(provider: string, resources: Resources): Promise<Placement | null> {
    for (;;) {
      const found = this.runners.place({ provider, capabilities: needs(resources) });
      // Without the capability it is refused for that, not for want of a runner.
      const offered = found ?? this.runners.place({ provider, capabilities: [] });
      if (offered || this.now() - this.startedAt > LISTEN_FIRST_MS) return offered;
      await sleep(LOOK_EVERY_MS);
    }
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
}

const needs = ({ gpu }: Resources): readonly Capability[] => (gpu === null ? [] : ['gpu']);
