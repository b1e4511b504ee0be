import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type SeededRandom, seededRandom } from '@vmux/testing';
import type { Actor } from '../support/actor';
import type { Cast } from '../support/cast';
import type { Link } from '../support/link';
import { sandboxesOf } from '../support/sandboxes';
import { Deck } from './deck';
import type { Engine } from './engine';
import type { NamedPoints } from './points';
import { type Stage, VERBS, type VerbName } from './stage';

export interface Faults {
  readonly counts: Record<string, number>;
  /** Sessions that lost a sandbox to this nemesis: what ran in it may end unknown. */
  readonly struck: Set<string>;
}

/** Where harm is done, and by what. */
export interface Scene {
  readonly cast: Cast;
  readonly random: SeededRandom;
  readonly faults: Faults;
  readonly stage: Stage;
  readonly points: NamedPoints;
  /** None without a Docker engine of the run's own. */
  readonly engine: Engine | null;
}

interface Torment extends Scene {
  readonly verbs: Deck<VerbName>;
  /** Of each of the two every process once before any again. */
  readonly killed: Deck<Actor>;
  readonly frozen: Deck<Actor>;
}

/** Does its harm, waits, and undoes it; says what it did, or null when there was nothing to harm. */
type Fault = (torment: Torment) => Promise<string | null>;

/** One fault after the other, at random, until told to stop; then everything runs again. */
export async function torment(
  scene: Scene,
  kinds: readonly FaultKind[],
  isOpen: () => boolean,
): Promise<void> {
  const { cast, random, faults, engine } = scene;
  const possible = kinds.filter((kind) => engine !== null || kind !== 'engine');
  const repertoire = possible.flatMap((kind) => REPERTOIRE[kind]);
  if (repertoire.length === 0) throw new Error('nothing can be broken: give it --docker');
  // Whatever there is comes by in a short run too.
  const dealt = <T>(cards: readonly T[]) => new Deck(cards, seededRandom(random.integer(2 ** 31)));
  const deck = dealt<Fault>(repertoire);
  const [verbs, killed, frozen] = [dealt(VERBS), dealt(cast.actors), dealt(cast.actors)];
  const count = (what: string) => {
    faults.counts[what] = (faults.counts[what] ?? 0) + 1;
  };
  while (isOpen()) {
    await pause(200 + random.integer(800));
    // Of its own: how much of it each fault takes depends on what it meets.
    const own = seededRandom(random.integer(2 ** 31));
    const done = await deck.next()({ ...scene, verbs, killed, frozen, random: own });
    if (done) count(done);
    for (const actor of cast.actors.filter(({ hasDied }) => hasDied)) {
      await actor.start();
      count(`${actor.name} ended by itself`);
    }
  }
}

const kill: Fault = async ({ random, killed }) => {
  const actor = killed.next();
  await actor.kill();
  await pause(random.integer(800));
  await actor.start();
  return `kill ${actor.name}`;
};

const freeze: Fault = async ({ random, frozen }) => {
  const actor = frozen.next();
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

/** Ends a process between a fact and its acknowledgement, or between two steps of a verb. */
const crashAtPoint: Fault = ({ points }) => points.crash();

/** Ends a process, any of them, in the middle of a verb. */
const interrupt: Fault = async ({ random, stage, verbs, killed }) => {
  const verb = verbs.next();
  const actor = killed.next();
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
export async function strike(
  cast: Cast,
  engine: Engine | null,
  faults: Faults,
  session: string,
): Promise<boolean> {
  const [newest] = sandboxesOf(cast.sandboxesDir, session).slice(-1);
  const isDone = newest ? killFirst(newest, faults) : ((await engine?.strike(session)) ?? false);
  const what = newest ? 'kill a sandbox' : 'kill a container';
  if (isDone) faults.counts[what] = (faults.counts[what] ?? 0) + 1;
  return isDone;
}

const killContainer: Fault = async ({ engine, random }) => engine?.killContainer(random) ?? null;
const removeContainer: Fault = async ({ engine, random }) =>
  engine?.removeContainer(random) ?? null;
const freezeEngine: Fault = async ({ engine, random }) => engine?.freeze(random) ?? null;
const restartEngine: Fault = async ({ engine, random }) => engine?.restart(random) ?? null;

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
  engine: [killContainer, removeContainer, freezeEngine, restartEngine],
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
