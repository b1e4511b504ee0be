import type { SeededRandom } from '@vmux/testing';
import type { Cast } from '../support/cast';
import { Deck } from './deck';
import type { Stage, VerbName } from './stage';

interface Point {
  /** Which processes pass it: whoever of them does so first ends there. */
  readonly whom: string;
  readonly point: string;
  /** What has to be done for it to come by; null where ordinary work is enough. */
  readonly verb: VerbName | null;
  readonly needsDocker?: true;
}

const [RUNNER, SERVICE, STORE] = ['runner', 'session-service', 'event-store'];

const POINTS: readonly Point[] = [
  { whom: SERVICE, point: 'before-answer', verb: null },
  { whom: 'gateway', point: 'after-answer', verb: null },
  { whom: RUNNER, point: 'after-answer', verb: null },
  { whom: STORE, point: 'before-sync', verb: null },
  { whom: STORE, point: 'after-sync', verb: null },
  { whom: RUNNER, point: 'checkpoint-standing', verb: 'checkpoint' },
  { whom: RUNNER, point: 'checkpoint-cloned', verb: 'checkpoint' },
  { whom: RUNNER, point: 'checkpoint-taken', verb: 'checkpoint' },
  { whom: RUNNER, point: 'archive-storing', verb: 'checkpoint' },
  { whom: RUNNER, point: 'archive-made', verb: 'checkpoint' },
  { whom: RUNNER, point: 'restore-disk-made', verb: 'rollback' },
  { whom: RUNNER, point: 'restore-created', verb: 'rollback' },
  { whom: RUNNER, point: 'restore-filled', verb: 'rollback' },
  { whom: RUNNER, point: 'restore-journalled', verb: 'fork' },
  { whom: RUNNER, point: 'frozen', verb: 'suspend' },
  { whom: RUNNER, point: 'thawed', verb: 'resume' },
  { whom: RUNNER, point: 'destroyed', verb: 'rollback' },
  { whom: SERVICE, point: 'appended-CheckpointRequested', verb: 'checkpoint' },
  { whom: SERVICE, point: 'appended-CheckpointTaken', verb: 'checkpoint' },
  { whom: SERVICE, point: 'appended-RollbackRequested', verb: 'rollback' },
  { whom: SERVICE, point: 'appending-SandboxStarted', verb: 'rollback' },
  { whom: SERVICE, point: 'appended-RolledBack', verb: 'rollback' },
  { whom: SERVICE, point: 'log-closed', verb: 'rollback' },
  { whom: SERVICE, point: 'appended-ForkRequested', verb: 'fork' },
  { whom: SERVICE, point: 'appended-SessionCreated', verb: 'fork' },
  { whom: SERVICE, point: 'appended-SuspendRequested', verb: 'suspend' },
  { whom: SERVICE, point: 'appended-SandboxSuspended', verb: 'suspend' },
  { whom: SERVICE, point: 'appended-ResumeRequested', verb: 'resume' },
  { whom: SERVICE, point: 'appended-SandboxLost', verb: 'rehydrate' },
  { whom: SERVICE, point: 'appended-RehydrateRequested', verb: 'rehydrate' },
  { whom: SERVICE, point: 'ordered-TakeCheckpoint', verb: 'checkpoint' },
  { whom: SERVICE, point: 'ordered-CreateSandbox', verb: 'rollback' },
  { whom: SERVICE, point: 'ordered-DestroySandbox', verb: 'release' },
  { whom: SERVICE, point: 'appended-MoveRequested', verb: 'move', needsDocker: true },
  { whom: SERVICE, point: 'appended-Moved', verb: 'move', needsDocker: true },
  { whom: RUNNER, point: 'checkpoint-taken', verb: 'move', needsDocker: true },
  { whom: RUNNER, point: 'restore-filled', verb: 'move', needsDocker: true },
  { whom: RUNNER, point: 'container-made', verb: 'move', needsDocker: true },
  { whom: RUNNER, point: 'container-removed', verb: 'move', needsDocker: true },
  { whom: RUNNER, point: 'container-frozen', verb: 'suspend', needsDocker: true },
  { whom: RUNNER, point: 'container-thawed', verb: 'resume', needsDocker: true },
  { whom: RUNNER, point: 'layers-kept', verb: 'checkpoint', needsDocker: true },
];

const nameOf = ({ whom, point, verb }: Point): string =>
  `${whom} ${point}${verb ? `, ${verb}` : ''}`;

export interface Tried {
  tried: number;
  reached: number;
}

const WITHIN_MS = 8_000;
const LOOK_EVERY_MS = 25;

/** Ends processes at named points, and keeps count of which were come by. */
export class NamedPoints {
  /** Of every point that this run can come by, so that one that it never did is seen. */
  readonly tally = new Map<string, Tried>();
  private readonly deck: Deck<Point>;

  constructor(
    private readonly cast: Cast,
    private readonly stage: Stage,
    private readonly random: SeededRandom,
    /** Only those that this fits. */
    wanted: RegExp,
  ) {
    const hasDocker = stage.providers.length > 1;
    const points = POINTS.filter(
      (each) => (hasDocker || !each.needsDocker) && wanted.test(nameOf(each)),
    );
    this.deck = new Deck(points, random);
    for (const each of points) this.tally.set(nameOf(each), { tried: 0, reached: 0 });
  }

  /** Ends whoever passes the next point first; null when nobody did in time. */
  async crash(): Promise<string | null> {
    const { cast, stage, random } = this;
    const card = this.deck.next();
    const { whom, point, verb } = card;
    const actors = cast.actors.filter(({ name }) => name.startsWith(whom));
    const before = cast.crashes().length;
    const isAgain = (this.tally.get(nameOf(card))?.reached ?? 0) > 0;
    const times = verb === null ? 1 + random.integer(20) : 1 + (isAgain ? random.integer(2) : 0);
    cast.crashAt(actors, `${point}:${times}`);
    for (let waited = 0; waited < WITHIN_MS; waited += LOOK_EVERY_MS) {
      if (actors.some(({ hasDied }) => hasDied)) break;
      stage.wanted = verb;
      await pause(LOOK_EVERY_MS);
    }
    stage.wanted = null;
    cast.crashAt(actors, null);
    await pause(50 + random.integer(600));
    for (const actor of actors.filter(({ hasDied }) => hasDied)) await actor.start();
    const isReached = cast.crashes().slice(before).includes(point);
    this.note(card, isReached);
    return isReached ? 'crash at a named point' : null;
  }

  private note(card: Point, isReached: boolean): void {
    const tried = this.tally.get(nameOf(card));
    if (!tried) return;
    tried.tried += 1;
    if (isReached) tried.reached += 1;
    else if (tried.tried === 1) this.deck.putBack(card);
  }
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
