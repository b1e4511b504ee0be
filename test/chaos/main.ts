import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { SandboxId } from '@vmux/runner-kit';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import { cgroupNameOf, keyOf } from '../../apps/runner-local/src/drivers/ns-store';
import { assemble, type Cast } from '../support/cast';
import { sweep } from '../support/sandboxes';
import { Checker, type Violation } from './checker';
import { PatientClient } from './client';
import { type Faults, torment } from './nemesis';
import { perform, type Script } from './workload';

const usage = `usage: npm run chaos -- [--minutes 3] [--seconds n] [--seed n] [--sessions 6] [--json]

Starts the whole stack as real processes, works in it, breaks it at random and checks the laws.
Exits with 1 on any violation. The same seed chooses the same faults; timing is the machine's own.
`;
const settleLimitMs = 10_000;
const finishLimitMs = 15_000;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Ends whatever is left, however the run ended: sandboxes outlive everything else by design. */
let cleanUp: () => Promise<void> = releaseAll;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '3' },
      seconds: { type: 'string' },
      seed: { type: 'string' },
      sessions: { type: 'string', default: '6' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  if (process.getuid?.() !== 0)
    throw new Error('the chaos run makes namespace sandboxes: run it as root on Linux');
  const seconds = Number(values.seconds ?? Number(values.minutes) * 60);
  const seed = values.seed === undefined ? Date.now() % 2 ** 31 : Number(values.seed);
  const sessions = Number(values.sessions);
  if (!(seconds > 0) || !Number.isInteger(seed) || !(sessions > 0)) throw new Error(usage);
  console.error(`chaos: ${seconds} s, seed ${seed}, ${sessions} sessions`);

  const cast = await assemble({ breakable: true });
  cleanUp = async () => {
    for (const actor of cast.actors) await actor.kill();
    await sweep(cast);
    await releaseAll();
  };
  const random = seededRandom(seed);
  const client = new PatientClient(cast.gateways, cast.apiKey(), seededRandom(seed + 1));
  const script: Script = { operations: [], followers: [], sessions: [] };
  const faults: Faults = { counts: {}, struck: new Set() };
  const end = Date.now() + seconds * 1000;
  const isOpen = () => Date.now() < end;
  const store = cast.openStore();
  const checker = new Checker(cast, client, script, faults, store);
  const work = perform({ client, random: seededRandom(seed + 2), sessions, isOpen }, script);
  await Promise.all([torment(cast, random, faults, isOpen), untilThen(work, end)]);
  console.error('chaos: everything runs again, settling');
  const settleMs = await checker.settled(settleLimitMs);
  await Promise.race([work, pause(finishLimitMs)]);
  const unfinished = [
    ...[...client.pending.values()].map((call) => `unanswered: ${call}`),
    ...script.followers
      .filter(({ finished }) => !finished)
      .map(
        ({ operation, bytes, lastAnswer }) =>
          `a follower of ${operation.session}/${operation.execId} waits at ${bytes.length}, last told ${lastAnswer}`,
      ),
  ];
  if (unfinished.length > 0) {
    for (const what of unfinished) checker.violations.push({ law: '7 converges', what });
  } else {
    console.error('chaos: checking');
    await checker.check();
  }
  const sandboxes = await checker.sandboxes();
  await store.close();
  await endSessions(cast, client, script);
  await cleanUp();
  const left = leftBehind(sandboxes);
  const violations: Violation[] = [
    ...checker.violations,
    ...left.map((what) => ({ law: 'leaves nothing behind', what })),
  ];
  report({ seed, faults, script, client, settleMs, violations, json: values.json });
  return violations.length === 0 ? 0 : 1;
}

/** A fault of the workload itself ends the run at once; its ordinary end is waited for later. */
const untilThen = (work: Promise<void>, end: number): Promise<void> =>
  Promise.race([
    work,
    new Promise<void>((done) => setTimeout(done, Math.max(0, end - Date.now()))),
  ]);

async function endSessions(cast: Cast, client: PatientClient, script: Script): Promise<void> {
  for (const session of script.sessions)
    await client.call('POST', `/v1/sessions/${session}/stop`, {});
  await until(() => readdirSync(cast.sandboxesDir).length === 0, { timeoutMs: 30_000 }).catch(
    () => undefined,
  );
}

/** What is left of these sandboxes on the machine; others may be at work beside this run. */
function leftBehind(sandboxes: readonly SandboxId[]): string[] {
  const groups = sandboxes.flatMap((id) =>
    ['.', 'memory', 'pids', 'freezer', 'cpu', 'unified']
      .map((hierarchy) => join('/sys/fs/cgroup', hierarchy, 'vmux', cgroupNameOf(keyOf(id))))
      .filter((path) => existsSync(path)),
  );
  const processes = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .map(commandOf)
    .filter((command) =>
      sandboxes.some(({ instance }) => command.includes(`--instance=${instance}`)),
    );
  return [...groups, ...processes].map((what) => `left behind: ${what}`);
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return ''; // It ended while it was looked at.
  }
}

interface Outcome {
  readonly seed: number;
  readonly faults: Faults;
  readonly script: Script;
  readonly client: PatientClient;
  readonly settleMs: number;
  readonly violations: readonly Violation[];
  readonly json: boolean;
}

function report({ seed, faults, script, client, settleMs, violations, json }: Outcome): void {
  const bytes = script.followers.reduce((sum, follower) => sum + follower.bytes.length, 0);
  const drops = script.followers.reduce((sum, follower) => sum + follower.drops, 0);
  const rows: [string, string | number][] = [
    ...Object.entries(faults.counts).sort(([one], [other]) => one.localeCompare(other)),
    ['operations acknowledged', script.operations.filter(({ execId }) => execId).length],
    ['requests', client.requests],
    ['requests that failed and were repeated', client.failures],
    ['bytes followed', bytes],
    ['followers dropped and resumed', drops],
    ['settled after, ms', settleMs],
    ['violations', violations.length],
  ];
  for (const [name, value] of rows) console.log(`${name.padEnd(42)} ${value}`);
  for (const { law, what, history = [] } of violations) {
    console.log(`\nVIOLATION of ${law}: ${what}\n  seed ${seed}`);
    for (const line of history) console.log(`  ${line}`);
  }
  if (!json) return;
  console.log(
    JSON.stringify({
      faults: Object.values(faults.counts).reduce((sum, count) => sum + count, 0),
      operations: script.operations.length,
      bytes,
      violations: violations.length,
      settle_ms_max: settleMs,
    }),
  );
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => void cleanUp().finally(() => process.exit(130)));
}
main().then(
  (code) => process.exit(code),
  async (error) => {
    console.error(error);
    await cleanUp();
    process.exit(2);
  },
);
