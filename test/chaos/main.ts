import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  type DockerEngine,
  noDockerEngineBecause,
  releaseAll,
  seededRandom,
  startDockerEngine,
} from '@vmux/testing';
import { assemble, type Cast } from '../support/cast';
import { sweep } from '../support/sandboxes';
import { Checker, type Violation } from './checker';
import { PatientClient } from './client';
import { Engine } from './engine';
import { deleteAll, leftBehind, leftOfRun, mountsBelow } from './leftovers';
import { FAULT_KINDS, type FaultKind, type Faults, strike, torment } from './nemesis';
import { NamedPoints } from './points';
import { report } from './report';
import { Stage } from './stage';
import { newTimeScript, playTime } from './time-workload';
import { perform, type Script } from './workload';

const usage = `usage: npm run chaos -- [--minutes 3] [--seconds n] [--seed n] [--sessions 6] [--time-sessions 2]
                        [--faults ${FAULT_KINDS.join(',')}] [--points <pattern>]
                        [--docker] [--logs <directory>] [--json]

Starts the whole stack as real processes, works in it, breaks it at random and checks the laws.
Exits with 1 on any violation. The same seed chooses the same faults; timing is the machine's own.
With --docker a Docker engine of its own is started and broken too; sessions move to it and back.
With --points only the named points that the pattern fits are crashed at.
With --logs what the processes said last is written there.
`;
const settleLimitMs = 10_000;
const finishLimitMs = 20_000;
/** On a machine with more to do than twice its processors can, everything takes longer in proportion. */
const slowness = (): number => Math.max(1, (loadavg()[0] ?? 0) / (2 * cpus().length));
const briefSandboxesMs = 8_000;
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
      'time-sessions': { type: 'string', default: '2' },
      faults: { type: 'string', default: FAULT_KINDS.join(',') },
      points: { type: 'string', default: '' },
      docker: { type: 'boolean', default: false },
      logs: { type: 'string' },
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
  const timeSessions = Number(values['time-sessions']);
  const counts = [sessions, timeSessions];
  const kinds = values.faults.split(',') as FaultKind[];
  if (!kinds.every((kind) => FAULT_KINDS.includes(kind))) throw new Error(usage);
  if (!(seconds > 0) || !Number.isInteger(seed) || !counts.every((count) => count >= 0))
    throw new Error(usage);
  console.error(`chaos: ${seconds} s, seed ${seed}, ${sessions} + ${timeSessions} sessions`);

  const engine = values.docker ? await ownEngine() : null;
  const runner = {
    VMUX_BRIEF_SANDBOXES_MS: String(briefSandboxesMs),
    ...(engine && {
      DOCKER_HOST: `unix://${engine.socketPath}`,
      VMUX_DOCKER_IMAGE: engine.image,
    }),
    ...(values.logs && { VMUX_LOG_LEVEL: 'info' }),
  };
  const cast = await assemble({ breakable: true, relayOutput: true, runner });
  cleanUp = async () => {
    for (const actor of cast.actors) await actor.kill();
    await sweep(cast);
    await engine?.stop();
    await releaseAll();
  };
  const client = new PatientClient(cast.gateways, cast.apiKey(), seededRandom(seed + 1));
  const script: Script = {
    ...{ operations: [], followers: [], sessions: [], secrets: [], watches: [] },
    time: newTimeScript(),
  };
  const faults: Faults = { counts: {}, struck: new Set() };
  const containers = engine && new Engine(engine, (session) => faults.struck.add(session));
  const providers = containers ? ['ns', 'docker'] : ['ns'];
  const stage = new Stage((session) => strike(cast, containers, faults, session), providers);
  const began = Date.now();
  const end = began + seconds * 1000;
  const isOpen = () => Date.now() < end;
  const progress = () => (Date.now() - began) / (seconds * 1000);
  const store = cast.openStore();
  const checker = new Checker(cast, client, script, faults, store);
  const players = Array.from({ length: timeSessions }, (_, index) => {
    const random = seededRandom(seed + 100 + index);
    return playTime({ client, random, stage, isOpen }, script.time, index);
  });
  const work = Promise.all([
    perform({ client, seed: seed + 10_000, sessions, providers, progress }, script),
    ...players,
  ]);
  const random = seededRandom(seed);
  const points = new NamedPoints(cast, stage, seededRandom(seed + 2), new RegExp(values.points));
  const scene = { cast, random, faults, stage, points, engine: containers };
  const torments = torment(scene, kinds, isOpen);
  await Promise.all([torments, untilThen(work, end)]);
  console.error('chaos: everything runs again, settling');
  const settleMs = await checker.settled(settleLimitMs * slowness());
  const isFinished = await Promise.race([work.then(() => true), pause(finishLimitMs * slowness())]);
  const unfinished = isFinished ? [] : unfinishedOf(client, script);
  if (!isFinished) {
    for (const what of unfinished) checker.violations.push({ law: '7 converges', what });
    for (const [session, what] of script.time.waiting)
      await checker.addStuck(session, `waits ${what}`);
  } else {
    console.error('chaos: checking');
    await checker.check();
  }
  for (const watch of script.watches) await watch.end(0, 0);
  const sandboxes = await checker.sandboxes();
  if (values.logs) keepLogs(cast, values.logs);
  const remains = isFinished ? await deleteAll(cast, client, store, script, containers) : [];
  await store.close();
  await cast.actors.find(({ name }) => name === 'runner')?.stop();
  if (isFinished && remains.length === 0) remains.push(...mountsBelow(cast, 'runner'));
  await cleanUp();
  remains.push(...leftBehind(sandboxes), ...(await leftOfRun(cast.dir)));
  const violations: Violation[] = [
    ...checker.violations,
    ...remains.map((what) => ({ law: 'leaves nothing behind', what })),
  ];
  report({
    ...{ points: kinds.includes('points') ? points.tally : new Map() },
    seed,
    faults,
    script,
    client,
    settleMs,
    violations,
    json: values.json,
  });
  return violations.length === 0 ? 0 : 1;
}

async function ownEngine(): Promise<DockerEngine> {
  const reason = noDockerEngineBecause();
  if (reason) throw new Error(`no Docker engine can be started here: ${reason}`);
  return startDockerEngine();
}

function unfinishedOf(client: PatientClient, script: Script): string[] {
  return [
    ...[...client.pending.values()].map((call) => `unanswered: ${call}`),
    ...script.followers
      .filter(({ finished }) => !finished)
      .map(
        ({ operation, bytes, lastAnswer }) =>
          `a follower of ${operation.session}/${operation.execId} waits at ${bytes.length}, last told ${lastAnswer}`,
      ),
  ];
}

function keepLogs(cast: Cast, directory: string): void {
  mkdirSync(directory, { recursive: true });
  for (const { name, output } of cast.actors) writeFileSync(join(directory, `${name}.log`), output);
}

/** A fault of the workload itself ends the run at once; its ordinary end is waited for later. */
const untilThen = (work: Promise<unknown>, end: number): Promise<unknown> =>
  Promise.race([
    work,
    new Promise<void>((done) => setTimeout(done, Math.max(0, end - Date.now()))),
  ]);

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
