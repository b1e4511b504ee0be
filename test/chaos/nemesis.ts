import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SeededRandom } from '@vmux/testing';
import type { Actor } from '../support/actor';
import type { Cast } from '../support/cast';
import type { Link } from '../support/link';
import { sandboxesOf } from '../support/sandboxes';
import { type Stage, VERBS, type VerbName } from './stage';

export interface Faults {
  readonly counts: Record<string, number>;
  /** Sessions that lost a sandbox to this nemesis: what ran in it may end unknown. */
  readonly struck: Set<string>;
}

interface Torment {
  readonly decks: Decks;
  readonly cast: Cast;
  readonly random: SeededRandom;
  readonly faults: Faults;
  readonly stage: Stage;
}

interface Decks {
  readonly points: Deck<(typeof POINTS)[number]>;
  readonly verbs: Deck<VerbName>;
}

/** Every card once before any comes again. */
class Deck<T> {
  private left: T[] = [];

  constructor(
    private readonly cards: readonly T[],
    private readonly random: SeededRandom,
  ) {}

  next(): T {
    if (this.left.length === 0) this.left = [...this.cards];
    const [card] = this.left.splice(this.random.integer(this.left.length), 1);
    if (card === undefined) throw new Error('an empty deck');
    return card;
  }
}

/** Does its harm, waits, and undoes it; says what it did, or null when there was nothing to harm. */
type Fault = (torment: Torment) => Promise<string | null>;

/** One fault after the other, at random, until told to stop; then everything runs again. */
export async function torment(
  cast: Cast,
  random: SeededRandom,
  faults: Faults,
  stage: Stage,
  kinds: readonly FaultKind[],
  isOpen: () => boolean,
): Promise<void> {
  const repertoire = kinds.flatMap((kind) => REPERTOIRE[kind]);
  const decks = { points: new Deck(POINTS, random), verbs: new Deck(VERBS, random) };
  const count = (what: string) => {
    faults.counts[what] = (faults.counts[what] ?? 0) + 1;
  };
  while (isOpen()) {
    await pause(200 + random.integer(800));
    const done = await random.pick(repertoire)({ cast, random, faults, stage, decks });
    if (done) count(done);
    for (const actor of cast.actors.filter(({ hasDied }) => hasDied)) {
      await actor.start();
      count(`${actor.name} ended by itself`);
    }
  }
}

const kill: Fault = async ({ cast, random }) => {
  const actor = random.pick(cast.actors);
  await actor.kill();
  await pause(random.integer(800));
  await actor.start();
  return `kill ${actor.name}`;
};

const freeze: Fault = async ({ cast, random }) => {
  const actor = random.pick(cast.actors);
  actor.signal('SIGSTOP');
  await pause(200 + random.integer(2_000));
  actor.signal('SIGCONT');
  return `freeze ${actor.name}`;
};

const loseNats: Fault = async ({ cast }) => {
  const nats = named(cast, 'nats');
  await nats.kill();
  nats.forget();
  await nats.start();
  return 'kill nats and its state';
};

const flushRedis: Fault = async ({ cast }) => {
  const redis = named(cast, 'redis');
  await redis.kill();
  await redis.start();
  return 'flush redis';
};

const breakLink: Fault = ({ cast, random }) => breakOne(random.pick(cast.links), random);

/** What is typed and piped goes through this one. */
const breakTunnel: Fault = async ({ cast, random }) =>
  cast.tunnel ? breakOne(cast.tunnel, random) : null;

async function breakOne(link: Link, random: SeededRandom): Promise<string> {
  const how = random.pick(['cut', 'hold', 'slow'] as const);
  if (how === 'cut') link.cut();
  else if (how === 'hold') link.hold();
  else link.slow(10 + random.integer(200));
  await pause(300 + random.integer(2_500));
  link.heal();
  return `${how} ${link.name}`;
}

const fillDisk: Fault = async ({ cast, random }) => {
  const empty = cast.fillDisk();
  await pause(500 + random.integer(2_000));
  empty();
  return 'fill the disk';
};

/** Runs with a clock that is off by up to an hour, and is then put right by a restart. */
const shiftClock: Fault = async ({ cast, random }) => {
  const actor = random.pick(ours(cast));
  const shiftMs = (random.integer(2) === 0 ? -1 : 1) * random.integer(3_600_000);
  await actor.kill();
  await actor.start({ VMUX_CLOCK_SHIFT_MS: String(shiftMs) });
  await pause(1_000 + random.integer(3_000));
  await actor.kill();
  await actor.start();
  return `shift the clock of ${actor.name}`;
};

/** Which process passes which point, and what has to be done for it to come by. */
const POINTS: readonly (readonly [actor: RegExp, point: string, verb: VerbName | null])[] = [
  [/^session-service/, 'before-answer', null],
  [/^(gateway|runner)/, 'after-answer', null],
  [/^event-store/, 'before-sync', null],
  [/^event-store/, 'after-sync', null],
  [/^runner/, 'checkpoint-standing', 'checkpoint'],
  [/^runner/, 'checkpoint-cloned', 'checkpoint'],
  [/^runner/, 'checkpoint-taken', 'checkpoint'],
  [/^runner/, 'archive-storing', 'checkpoint'],
  [/^runner/, 'archive-made', 'checkpoint'],
  [/^runner/, 'restore-disk-made', 'rollback'],
  [/^runner/, 'restore-created', 'rollback'],
  [/^runner/, 'restore-filled', 'rollback'],
  [/^runner/, 'restore-journalled', 'fork'],
  [/^runner/, 'frozen', 'suspend'],
  [/^runner/, 'thawed', 'resume'],
  [/^runner/, 'destroyed', 'rollback'],
  [/^runner/, 'checkpoint-cloned', 'move'],
  [/^runner/, 'restore-filled', 'move'],
  [/^session-service/, 'appended-CheckpointRequested', 'checkpoint'],
  [/^session-service/, 'appended-CheckpointTaken', 'checkpoint'],
  [/^session-service/, 'appended-RollbackRequested', 'rollback'],
  [/^session-service/, 'appending-SandboxStarted', 'rollback'],
  [/^session-service/, 'appended-RolledBack', 'rollback'],
  [/^session-service/, 'log-closed', 'rollback'],
  [/^session-service/, 'appended-ForkRequested', 'fork'],
  [/^session-service/, 'appended-SessionCreated', 'fork'],
  [/^session-service/, 'appended-SuspendRequested', 'suspend'],
  [/^session-service/, 'appended-SandboxSuspended', 'suspend'],
  [/^session-service/, 'appended-ResumeRequested', 'resume'],
  [/^session-service/, 'appended-SandboxLost', 'rehydrate'],
  [/^session-service/, 'appended-RehydrateRequested', 'rehydrate'],
  [/^session-service/, 'appended-MoveRequested', 'move'],
  [/^session-service/, 'appended-Moved', 'move'],
  [/^session-service/, 'ordered-TakeCheckpoint', 'checkpoint'],
  [/^session-service/, 'ordered-CreateSandbox', 'rollback'],
  [/^session-service/, 'ordered-DestroySandbox', 'release'],
];

/** Ends a process between a fact and its acknowledgement, or between two steps of a verb. */
const crashAtPoint: Fault = async ({ cast, random, stage, decks }) => {
  const [whom, point, verb] = decks.points.next();
  const actor = random.pick(cast.actors.filter(({ name }) => whom.test(name)));
  const times = verb === null ? 1 + random.integer(20) : 1 + random.integer(2);
  await actor.kill();
  await actor.start({ VMUX_CRASH_AT: `${point}:${times}` });
  const within = verb === null ? 3_000 : 5_000;
  for (let waited = 0; waited < within && !actor.hasDied; waited += 50) {
    stage.wanted = verb;
    await pause(50);
  }
  stage.wanted = null;
  const reached = actor.hasDied;
  await actor.kill();
  await actor.start();
  return reached ? `crash ${actor.name} ${point}` : `kill ${actor.name}`;
};

/** Ends a process, any of them, in the middle of a verb. */
const interrupt: Fault = async ({ cast, random, stage, decks }) => {
  const verb = decks.verbs.next();
  const actor = random.pick(cast.actors);
  const isBegun = await stage.begun(verb, 4_000);
  await pause(random.integer(random.pick([30, 150, 600])));
  await actor.kill();
  await pause(random.integer(500));
  await actor.start();
  return isBegun ? `kill ${actor.name} during ${verb}` : `kill ${actor.name}`;
};

/** Ends the first process of some sandbox behind everybody's back. */
const killSandbox: Fault = async ({ cast, random, faults }) => {
  const sandboxes = readdirSync(cast.sandboxesDir);
  if (sandboxes.length === 0) return null;
  return killFirst(join(cast.sandboxesDir, random.pick(sandboxes)), faults)
    ? 'kill a sandbox'
    : null;
};

/** Of this session alone. */
export const strike = (cast: Cast, faults: Faults, session: string): boolean => {
  const [newest] = sandboxesOf(cast.sandboxesDir, session).slice(-1);
  const isDone = newest !== undefined && killFirst(newest, faults);
  if (isDone) faults.counts['kill a sandbox'] = (faults.counts['kill a sandbox'] ?? 0) + 1;
  return isDone;
};

function killFirst(directory: string, faults: Faults): boolean {
  try {
    const session = /"sessionId":\s*"([^"]+)"/.exec(
      readFileSync(join(directory, 'state.json'), 'utf8'),
    )?.[1];
    const pid = Number(readFileSync(join(directory, 'pid'), 'utf8').split(' ')[0]);
    if (!session || !(pid > 1)) return false;
    faults.struck.add(session);
    process.kill(pid, 'SIGKILL');
    return true;
  } catch (fault) {
    // It is being made or removed at this moment.
    const { code } = fault as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ESRCH') throw fault;
    return false;
  }
}

/** By kind, as often as each is named. */
const REPERTOIRE = {
  processes: [kill, kill, kill, freeze, freeze, loseNats, flushRedis],
  links: [breakLink, breakLink, breakLink, breakTunnel, breakTunnel],
  machine: [fillDisk, shiftClock],
  sandboxes: [killSandbox],
  points: [crashAtPoint, crashAtPoint, crashAtPoint, crashAtPoint],
  verbs: [interrupt, interrupt, interrupt],
} as const satisfies Readonly<Record<string, readonly Fault[]>>;

export type FaultKind = keyof typeof REPERTOIRE;
export const FAULT_KINDS = Object.keys(REPERTOIRE) as readonly FaultKind[];

/** The processes that are our own programs. */
const ours = ({ actors }: Cast): Actor[] =>
  actors.filter(({ name }) => name !== 'nats' && name !== 'redis');

function named({ actors }: Cast, wanted: string): Actor {
  const actor = actors.find(({ name }) => name === wanted);
  if (!actor) throw new Error(`there is no ${wanted} in the cast`);
  return actor;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
