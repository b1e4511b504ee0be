import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Capability,
  type Checkpoint,
  type CommandNamed,
  type Placement,
  Refusal,
  type Resources,
} from '@vmux/events';
import { type Wanted, wantedSandbox } from '../domain/consequences';
import { checkpointOf, type Living } from '../domain/state';
import type { Wanted as Asked, Runners } from './runners';

type NewSession = Pick<CommandNamed<'CreateSession'>['data'], 'provider' | 'spec' | 'lineage'>;

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

  forNew({ provider, spec, lineage }: NewSession): Promise<Placement | null> {
    const rather = holderOf(lineage?.checkpoint, provider);
    return this.heard(
      () =>
        this.runners.place({ provider, capabilities: needs(spec.resources), ...rather }) ??
        // Without the capability it is refused for that, not for want of a runner.
        this.runners.place({ provider, capabilities: [], ...rather }),
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
    const { provider } = wanted;
    const checkpoint = restoredFrom(session, wanted);
    const rather = holderOf(checkpoint, provider);
    return canRestore(checkpoint, this.runners.find({ provider, capabilities, ...rather }));
  }

  forWanted(session: Living, wanted: Wanted): Placement | null {
    const { provider, operation } = wanted;
    const except = operation.kind === 'move' ? session.current?.runnerId : undefined;
    const capabilities = needs(session.spec.resources);
    const checkpoint = restoredFrom(session, wanted);
    const asked = { provider, capabilities, ...holderOf(checkpoint, provider) };
    const found = this.runners.find({ ...asked, except }) ?? this.runners.find(asked);
    if (!canRestore(checkpoint, found)) return null;
    return this.runners.place({ ...asked, rather: found?.runnerId });
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

const restoredFrom = (session: Living, { operation }: Wanted): Checkpoint | undefined => {
  const from =
    operation.kind === 'create' ? session.lineage?.checkpoint.checkpointId : operation.checkpointId;
  return from ? checkpointOf(session, from) : undefined;
};

/** Who has the checkpoint in its provider's own form: from there it is restored the fastest. */
function holderOf(
  checkpoint: Checkpoint | undefined,
  provider: string,
): Pick<Asked, 'rather' | 'ratherOf'> {
  const { native } = checkpoint ?? {};
  if (native?.provider !== provider) return {};
  return native.pool === undefined ? { rather: native.runnerId } : { ratherOf: native.pool };
}

/** What is not stored yet is with its holder alone: the sandbox waits for that one. */
const canRestore = (checkpoint: Checkpoint | undefined, found: Placement | null): boolean =>
  found !== null &&
  (!checkpoint || checkpoint.artifact !== null || checkpoint.native?.runnerId === found.runnerId);

const needs = ({ gpu }: Resources): readonly Capability[] => (gpu === null ? [] : ['gpu']);
