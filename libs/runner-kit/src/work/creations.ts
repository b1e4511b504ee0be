import { MAX_MAKING, type Making, type MakingStage, type Stage } from '@vmux/events';
import type { SandboxId } from '../driver';

const MAX_DETAIL = 1000;

/** A sandbox that is being made: how far it has come, until it is there or given up. */
export class Creation {
  readonly signal: AbortSignal;
  private readonly giving = new AbortController();
  private readonly reached = new Map<MakingStage, number>();
  private current: Pick<Making, 'stage' | 'since' | 'detail'>;

  constructor(
    readonly id: SandboxId,
    signal: AbortSignal,
    private readonly changed: () => void,
  ) {
    this.signal = AbortSignal.any([signal, this.giving.signal]);
    this.current = { stage: 'starting', since: Date.now(), detail: null };
  }

  get isGivenUp(): boolean {
    return this.giving.signal.aborted;
  }

  get making(): Making {
    const { sessionId, epoch } = this.id;
    return { sessionId, epoch, ...this.current };
  }

  /** As the driver says it. */
  readonly reach = (stage: MakingStage, detail: string | null = null): void => {
    const { since, stage: before } = this.current;
    const now = Date.now();
    const said = detail === null ? null : detail.slice(-MAX_DETAIL);
    this.current = { stage, since: stage === before ? since : now, detail: said };
    if (!this.reached.has(stage)) this.reached.set(stage, now);
    this.changed();
  };

  /** What belongs into the history once the sandbox has started: of a pending one nothing is recorded. */
  get stages(): readonly [Stage, number][] {
    const [building, queued] = [this.reached.get('building'), this.reached.get('queued')];
    const built = building === undefined ? undefined : (queued ?? this.reached.get('starting'));
    return [
      ...(built === undefined ? [] : [['built', built] as [Stage, number]]),
      ...(queued === undefined ? [] : [['queued', queued] as [Stage, number]]),
    ];
  }

  giveUp(): void {
    this.giving.abort(new CreationGivenUp());
  }
}

export class CreationGivenUp extends Error {
  constructor() {
    super('nobody wants this sandbox any more');
    this.name = 'CreationGivenUp';
  }
}

/** The sandboxes that this runner is making. */
export class Creations {
  private readonly underWay = new Map<string, { creation: Creation; done: Promise<unknown> }>();
  private listener: () => void = () => undefined;

  constructor(private readonly signal: AbortSignal) {}

  onChange(listener: () => void): void {
    this.listener = listener;
  }

  get making(): readonly Making[] {
    return [...this.underWay.values()].slice(0, MAX_MAKING).map(({ creation }) => creation.making);
  }

  async of<T>(id: SandboxId, make: (creation: Creation) => Promise<T>): Promise<T> {
    const creation = new Creation(id, this.signal, () => this.listener());
    const done = make(creation);
    this.underWay.set(keyOf(id), { creation, done });
    try {
      return await done;
    } finally {
      this.underWay.delete(keyOf(id));
      this.listener();
    }
  }

  /** Gives up the one that is under way; returns what it was once nothing is left of it, or it is there. */
  async giveUp(sessionId: string, epoch: number): Promise<SandboxId | undefined> {
    const found = this.underWay.get(keyOf({ sessionId, epoch }));
    if (!found) return undefined;
    found.creation.giveUp();
    await found.done.catch(() => undefined);
    return found.creation.id;
  }
}

const keyOf = ({ sessionId, epoch }: Pick<SandboxId, 'sessionId' | 'epoch'>) =>
  `${sessionId}/${epoch}`;
