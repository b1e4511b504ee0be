import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SeededRandom } from '@vmux/testing';
import type { Actor } from '../support/actor';
import type { Cast } from '../support/cast';

export interface Faults {
  readonly counts: Record<string, number>;
  /** Sessions that lost a sandbox to this nemesis: what ran in it may end unknown. */
  readonly struck: Set<string>;
}

interface Torment {
  readonly cast: Cast;
  readonly random: SeededRandom;
  readonly faults: Faults;
}

/** Does its harm, waits, and undoes it; says what it did, or null when there was nothing to harm. */
type Fault = (torment: Torment) => Promise<string | null>;

/** One fault after the other, at random, until told to stop; then everything runs again. */
export async function torment(
  cast: Cast,
  random: SeededRandom,
  faults: Faults,
  isOpen: () => boolean,
): Promise<void> {
  const count = (what: string) => {
    faults.counts[what] = (faults.counts[what] ?? 0) + 1;
  };
  while (isOpen()) {
    await pause(200 + random.integer(800));
    const done = await random.pick(REPERTOIRE)({ cast, random, faults });
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

const breakLink: Fault = async ({ cast, random }) => {
  const link = random.pick(cast.links);
  const how = random.pick(['cut', 'hold', 'slow'] as const);
  if (how === 'cut') link.cut();
  else if (how === 'hold') link.hold();
  else link.slow(10 + random.integer(200));
  await pause(300 + random.integer(2_500));
  link.heal();
  return `${how} ${link.name}`;
};

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

const POINTS: readonly (readonly [actor: RegExp, point: string])[] = [
  [/^session-service/, 'before-answer'],
  [/^(gateway|runner)/, 'after-answer'],
  [/^event-store/, 'before-sync'],
  [/^event-store/, 'after-sync'],
];

/** Ends a process between a fact and its acknowledgement. */
const crashAtPoint: Fault = async ({ cast, random }) => {
  const [whom, point] = random.pick(POINTS);
  const actor = random.pick(cast.actors.filter(({ name }) => whom.test(name)));
  await actor.kill();
  await actor.start({ VMUX_CRASH_AT: `${point}:${1 + random.integer(20)}` });
  for (let waited = 0; waited < 3_000 && !actor.hasDied; waited += 50) await pause(50);
  const reached = actor.hasDied;
  await actor.kill();
  await actor.start();
  return reached ? `crash ${actor.name} ${point}` : null;
};

/** Ends the first process of some sandbox behind everybody's back. */
const killSandbox: Fault = async ({ cast, random, faults }) => {
  const sandboxes = readdirSync(cast.sandboxesDir);
  if (sandboxes.length === 0) return null;
  const chosen = join(cast.sandboxesDir, random.pick(sandboxes));
  try {
    const session = /"sessionId":\s*"([^"]+)"/.exec(
      readFileSync(join(chosen, 'state.json'), 'utf8'),
    )?.[1];
    const pid = Number(readFileSync(join(chosen, 'pid'), 'utf8').split(' ')[0]);
    if (!session || !(pid > 1)) return null;
    faults.struck.add(session);
    process.kill(pid, 'SIGKILL');
    return 'kill a sandbox';
  } catch (fault) {
    // It is being made or removed at this moment.
    const { code } = fault as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ESRCH') throw fault;
    return null;
  }
};

/** As often as each is named. */
const REPERTOIRE: readonly Fault[] = [
  ...[kill, kill, kill, freeze, freeze, loseNats, flushRedis, killSandbox],
  ...[breakLink, breakLink, breakLink, fillDisk, shiftClock, crashAtPoint, crashAtPoint],
];

/** The processes that are our own programs. */
const ours = ({ actors }: Cast): Actor[] =>
  actors.filter(({ name }) => name !== 'nats' && name !== 'redis');

function named({ actors }: Cast, wanted: string): Actor {
  const actor = actors.find(({ name }) => name === wanted);
  if (!actor) throw new Error(`there is no ${wanted} in the cast`);
  return actor;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
