import type { Recorded } from '@vmux/events';
import type { Breach, History, Law } from './laws';
import { lookOf, NO_TREE } from './trees';

/** A version of the tree; null is none. */
type Version = number | null;
type Versions = ReadonlySet<Version>;

export interface TreeFacts {
  /** By exec: the version that it makes. */
  readonly writes: ReadonlyMap<string, number>;
  /** By exec: what it saw. */
  readonly looks: ReadonlyMap<string, string>;
  /** By checkpoint of other sessions: what it may hold. */
  readonly checkpoints: ReadonlyMap<string, Versions>;
}

const LAW = 'a verb is done or not done';
const look = (version: Version): string => (version === null ? NO_TREE : lookOf(version));
const inWords = (versions: Versions): string => [...versions].sort().join(' or ') || 'nothing';

/**
 * Which tree a session may hold at each point of its history: an epoch begins with its checkpoint's, a write
 * that has ended has made its own, and one that has not may have. A look that sees any other tree is a breach.
 */
class Fold {
  readonly breaches: Breach[] = [];
  private now: Versions = new Set([null]);
  /** What made it so: a history that is cut short must not leave that out. */
  private because = 'nothing was written';
  private readonly writing = new Map<string, number>();
  /** What was there since a look, or a checkpoint, was asked for. */
  private readonly since = new Map<string, Set<Version>>();

  readonly checkpoints: Map<string, Versions>;

  constructor(private readonly facts: TreeFacts) {
    this.checkpoints = new Map(facts.checkpoints);
  }

  take({ event }: Recorded): void {
    switch (event.type) {
      case 'SandboxStarted':
        this.begin(event.data.epoch, event.data.restored?.checkpointId ?? null);
        return;
      case 'ExecIssued':
        if (event.data.epoch !== null) this.dispatched(event.data.execId);
        return;
      case 'ExecDispatched':
        this.dispatched(event.data.execId);
        return;
      case 'ExecExited': {
        const { execId, outcome } = event.data;
        this.ended(execId, outcome.kind === 'exited' && outcome.code === 0);
        return;
      }
      case 'CheckpointRequested':
        this.since.set(event.data.checkpointId, new Set(this.now));
        return;
      case 'CheckpointTaken': {
        const { checkpointId } = event.data.checkpoint;
        this.checkpoints.set(checkpointId, this.since.get(checkpointId) ?? this.now);
        this.since.delete(checkpointId);
        return;
      }
    }
  }

  private begin(epoch: number, checkpointId: string | null): void {
    const held = checkpointId === null ? new Set([null]) : this.checkpoints.get(checkpointId);
    if (!held)
      this.breaches.push({
        law: LAW,
        what: `epoch ${epoch} began with ${checkpointId}, of nobody`,
      });
    this.now = held ?? new Set([null]);
    this.because = `epoch ${epoch} began with ${checkpointId ?? 'no checkpoint'}`;
    this.writing.clear();
    this.since.clear();
  }

  private dispatched(execId: string): void {
    const version = this.facts.writes.get(execId);
    if (version !== undefined) {
      this.writing.set(execId, version);
      this.become(new Set([...this.now, version]));
    }
    if (this.facts.looks.has(execId)) this.since.set(execId, new Set(this.now));
  }

  private ended(execId: string, well: boolean): void {
    const version = this.writing.get(execId);
    if (version !== undefined) {
      this.writing.delete(execId);
      if (well) this.become(new Set([version, ...this.writing.values()]));
      this.because = `${execId} was the last to write, ${well ? 'well' : 'perhaps'}`;
    }
    const seen = this.facts.looks.get(execId);
    const since = this.since.get(execId);
    if (!well || seen === undefined || !since) return;
    this.since.delete(execId);
    const possible = [...since].filter((each) => look(each) === seen);
    if (possible.length === 0)
      this.breaches.push({
        law: LAW,
        what: `${execId} saw the tree ${seen.slice(0, 12)}; it must be ${inWords(since)}: ${this.because}`,
      });
    else if (this.writing.size === 0)
      this.now = new Set([...this.now].filter((each) => look(each) === seen));
  }

  private become(now: Versions): void {
    this.now = now;
    for (const seen of this.since.values()) for (const version of now) seen.add(version);
  }
}

const folded = (facts: TreeFacts, history: History): Fold => {
  const fold = new Fold(facts);
  for (const recorded of history) fold.take(recorded);
  return fold;
};

export const treesFollow =
  (facts: TreeFacts): Law =>
  (history) =>
    folded(facts, history).breaches;

/** With the checkpoints of this history too. */
export const withCheckpointsOf = (facts: TreeFacts, history: History): TreeFacts => ({
  ...facts,
  checkpoints: folded(facts, history).checkpoints,
});
