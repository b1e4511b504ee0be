/**
 * The comparison: one exec of /bin/true through everything (HTTP → durable event → sandbox → durable exit →
 * HTTP) beside `docker exec` and a bare spawn; a new session's first output beside `docker run`; output
 * carried to the log and read back beside `docker logs -f`; a keystroke's echo beside `docker exec -it`; and
 * how each grows with the history and with the number of sessions. Writes RESULTS.md.
 */
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { availableParallelism, loadavg } from 'node:os';
import { join } from 'node:path';
import {
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  startDockerEngine,
  temporaryDirectory,
} from '@vmux/testing';
import { DataDirectory } from '../apps/cli/src/stack/data-directory';
import { startStack } from '../apps/cli/src/stack/stack';
import { assemble, type Cast } from '../test/support/cast';
import { firstProcessOf, sweep } from '../test/support/sandboxes';
import { DockerRival, ended } from './docker-rival';
import { type Grown, grown, LOG_EXEC, replayed, seen } from './growth';
import { interleaved, ratioOf, rowsOf, type Times } from './interleaved';
import { machineFacts, memoryMiB, untilIdle, untilQuiet } from './machine';
import type { Line } from './plot';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';
import { writeResults } from './results';
import { Subject, writing } from './subject';

const BUDGET_MS = 540_000;
/** What runs for days is measured once its hot code is compiled, and apart from that as it was at first. */
const WARM_UP = 1500;
const FIRST = 100;
const EXECS = 60;
const IN_A_ROW = 10;
const CREATES = 10;
const LOG_ROUNDS = 3;
const LOG_MIB = 32;
const KEYSTROKES = 60;
const RECONNECTS = 40;
const HISTORIES = [1_000, 10_000, 100_000];
const CROWDS = [1, 10, 100, 500];

/** Ends whatever is left, however the run ended: sandboxes outlive everything else by design. */
let cleanUp: () => Promise<void> = releaseAll;

const began = performance.now();
const leftMs = (): number => BUDGET_MS - (performance.now() - began);
const step = (what: string): void =>
  console.error(`${figure((performance.now() - began) / 1000)} s: ${what}`);

/** What was left behind by what came before is not measured with what comes now. */
async function part(what: string): Promise<void> {
  await untilQuiet();
  step(what);
}

async function main(): Promise<void> {
  const facts = machineFacts();
  const noDocker = noDockerEngineBecause();
  step('cold start');
  const coldStartMs = await coldStart();
  const cast = await assemble({ copies: 1, runner: { VMUX_MAX_SANDBOXES: '1000' } });
  cleanUp = async () => {
    for (const actor of cast.actors) await actor.kill();
    await sweep(cast);
    await releaseAll();
  };
  try {
    const idleMiB = memoryMiB(pidsOf(cast));
    const engine = noDocker ? null : await startDockerEngine();
    const docker = engine && new DockerRival(engine);
    await docker?.start();
    const vmux = new Subject(cast);
    const session = await vmux.created();
    step(`${WARM_UP} execs to warm up`);
    const first = await timed(FIRST, () => vmux.exec(session));
    for (let at = FIRST; at < WARM_UP; at++) await vmux.exec(session);

    const compared = await compare(vmux, docker, session);
    await engine?.stop();
    const events = await byEvents(cast, vmux);
    const sessions = await bySessions(cast, vmux, session);
    step('done');

    const figures: Record<string, number> = {
      ...compared.figures,
      ...events.figures,
      ...sessions.figures,
      exec_first_ms_p50: median(first),
      idle_stack_mib: idleMiB,
      cold_start_ms: coldStartMs,
    };
    const firsts = row(`exec /bin/true: vmux, the first ${FIRST} after a start`, first);
    const rows = [...compared.rows, firsts, ...events.rows, ...sessions.rows];
    const notes = [
      ...compared.notes,
      ...sessions.notes,
      `replay of ${figure(Math.max(...HISTORIES))} events: ${figure(figures.replay_events_per_s ?? 0)} events per second`,
      `cold start, as \`vmux up\` does it: ${figure(coldStartMs)} ms; the idle stack takes ${figure(idleMiB)} MiB`,
      `every vmux exec: ${WARM_UP} went before to warm up; every rival had one`,
      'before each comparison all that is to be written is written, and the machine comes to rest',
      ...(noDocker ? [`no docker figures: ${noDocker}`] : []),
    ];
    printTable(['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'], rows);
    for (const note of [...notes, ...facts, `load at the end ${figure(loadavg()[0] ?? 0)}`])
      console.log(note);
    writeResults({
      ...{ facts, figures, rows, notes },
      ...{ byEvents: events.lines, bySessions: sessions.lines },
    });
    if (wantsJson()) printJson(figures);
  } finally {
    await cleanUp();
  }
}

interface Measured {
  readonly figures: Record<string, number>;
  readonly rows: string[][];
}

async function compare(
  vmux: Subject,
  docker: DockerRival | null,
  session: string,
): Promise<Measured & { notes: string[] }> {
  await part('execs');
  const executors = {
    vmux: { timed: () => vmux.exec(session) },
    'docker exec, API': docker && { timed: () => docker.exec() },
    'docker exec, CLI': docker && { timed: () => docker.execByCli() },
    spawn: { timed: () => ended(spawn('/bin/true')) },
  };
  const execs = await interleaved(EXECS, executors);
  const rows = await interleaved(EXECS / IN_A_ROW, executors, IN_A_ROW);
  await part('creates');
  let created = '';
  const creates = await interleaved(CREATES, {
    vmux: {
      timed: async () => {
        created = await vmux.created();
        await vmux.firstOutput(created);
      },
      after: () => vmux.stop(created),
    },
    'docker run': docker && { timed: () => docker.run() },
  });
  await part('logs');
  const logs = await interleaved(LOG_ROUNDS, {
    vmux: { timed: () => vmux.output(session, LOG_MIB) },
    'docker logs -f': docker && { timed: () => docker.output(LOG_MIB) },
    'cat to sha256sum': {
      timed: () => ended(spawn('/bin/sh', ['-c', `${writing(LOG_MIB)} | cat | sha256sum`])),
    },
  });
  await part('keystrokes');
  const [here, there] = [await vmux.terminal(session), await docker?.terminal()];
  const keys = await interleaved(KEYSTROKES, {
    vmux: { timed: () => here.strike() },
    'docker exec -it': there ? { timed: () => there.strike() } : null,
  });
  here.leave();
  there?.leave();

  const versus = (times: Times, rival: string) => ratioOf(times, 'vmux', rival);
  return {
    figures: {
      exec_ms_p50: median(execs.vmux ?? []),
      exec_vs_spawn: versus(execs, 'spawn'),
      log_mib_per_s: (LOG_MIB * 1000) / median(logs.vmux ?? []),
      echo_ms_p50: median(keys.vmux ?? []),
      ...(docker
        ? {
            exec_vs_docker: versus(execs, 'docker exec, API'),
            exec_vs_docker_in_a_row: versus(rows, 'docker exec, API'),
            exec_vs_docker_cli: versus(execs, 'docker exec, CLI'),
            create_vs_docker: versus(creates, 'docker run'),
            logs_vs_docker: 1 / versus(logs, 'docker logs -f'),
            echo_vs_docker: versus(keys, 'docker exec -it'),
          }
        : {}),
    },
    rows: [
      ...rowsOf('exec /bin/true', execs, 'vmux'),
      ...rowsOf(`exec /bin/true, ${IN_A_ROW} in a row`, rows, 'vmux'),
      ...rowsOf('create → first output', creates, 'vmux'),
      ...rowsOf(`${LOG_MIB} MiB of output, written → read`, logs, 'vmux'),
      ...rowsOf('a keystroke’s echo', keys, 'vmux'),
    ],
    notes:
      docker && docker.lostBytes > 0
        ? [
            `docker logs -f left out ${figure(docker.lostBytes / 2 ** 20)} MiB; vmux is checked to the byte`,
          ]
        : [],
  };
}

async function byEvents(cast: Cast, vmux: Subject): Promise<Measured & { lines: Line[] }> {
  step(`sessions of ${HISTORIES.join(', ')} events`);
  const sessions = new Map<number, string>();
  for (const events of HISTORIES) sessions.set(events, await vmux.created());
  const all = [...(await grown(cast, sessions))];
  await untilIdle(pidsOf(cast));
  for (let at = 0; at < WARM_UP / 3; at++)
    for (const [, { session }] of all) await vmux.exec(session);
  const labelled = (work: (grown: Grown) => () => Promise<void>) =>
    Object.fromEntries(all.map(([events, one]) => [events, { timed: work(one) }]));

  step('execs beside each history');
  const execs = await interleaved(
    EXECS,
    labelled(
      ({ session }) =>
        () =>
          vmux.exec(session),
    ),
  );
  step('reconnects to each log');
  // Whoever was cut off for a moment has all but the last few pieces.
  const reconnects = await interleaved(
    RECONNECTS,
    labelled(({ log, pieces }) =>
      roundsOf((at) => vmux.reconnect(log, LOG_EXEC, seen(pieces - 20 - at).eventId)),
    ),
  );
  const reads = await interleaved(
    RECONNECTS,
    labelled(({ log, pieces }) =>
      roundsOf((at) => vmux.readFrom(log, LOG_EXEC, seen(pieces - 20 - at).offset)),
    ),
  );
  step('replay');
  const longest = Math.max(...HISTORIES);
  const points = (times: Times) =>
    HISTORIES.map((events): [number, number] => [events, median(times[events] ?? [])]);
  return {
    figures: {
      exec_growth_1k_to_100k_events: ratioOf(execs, String(longest), '1000'),
      reconnect_ms_p50_at_100k: median(reconnects[longest] ?? []),
      read_from_offset_ms_p50_at_100k: median(reads[longest] ?? []),
      replay_events_per_s: await replayed(cast, sessions.get(longest) ?? ''),
    },
    rows: HISTORIES.flatMap((events) => [
      row(`exec /bin/true: vmux, ${figure(events)} events in the session`, execs[events] ?? []),
      row(
        `reconnect → first byte: vmux, log of ${figure(events)} events`,
        reconnects[events] ?? [],
      ),
    ]),
    lines: [
      { name: 'exec', points: points(execs) },
      { name: 'reconnect to first byte', points: points(reconnects) },
    ],
  };
}

async function bySessions(
  cast: Cast,
  vmux: Subject,
  session: string,
): Promise<Measured & { lines: Line[]; notes: string[] }> {
  const sessions = [await vmux.created()];
  const [measured] = sessions;
  if (!measured) throw new Error(`no session beside ${session}`);
  const alone = memoryMiB(pidsOf(cast));
  const execs = new Map<number, number>();
  const rows: string[][] = [];
  const notes: string[] = [];
  let createMs = 0;
  for (const crowd of CROWDS) {
    const needMs = (crowd - sessions.length) * createMs;
    if (crowd > 1 && needMs > leftMs()) {
      notes.push(
        `${crowd} sessions were left out: making them would take ${figure(needMs / 1000)} s and ${figure(leftMs() / 1000)} s were left`,
      );
      break;
    }
    step(`${crowd} sessions`);
    const more = crowd - sessions.length;
    const started = performance.now();
    await inParallel(more, availableParallelism(), async () => {
      const made = await vmux.created();
      await vmux.exec(made);
      sessions.push(made);
    });
    if (more > 0) createMs = (performance.now() - started) / more;
    const execMs = await timed(EXECS, () => vmux.exec(measured));
    execs.set(crowd, median(execMs));
    rows.push(row(`exec /bin/true: vmux, ${crowd} sessions`, execMs));
  }
  const held = sessions.length;
  const stackMiB = (memoryMiB(pidsOf(cast)) - alone) / Math.max(1, held - 1);
  const supervisorMiB = memoryMiB([firstProcessOf(cast.sandboxesDir, measured)]);
  notes.push(
    `a session with a sandbox takes ${figure(supervisorMiB)} MiB for its supervisor, beside what runs in it; for each of ${held} the stack grew by ${figure(stackMiB)} MiB, as far as its heaps' own ups and downs let that be told`,
  );
  return {
    figures: {
      ...(execs.has(100) ? { exec_growth_1_to_100_sessions: growth(execs, 1, 100) } : {}),
      session_mib: stackMiB + supervisorMiB,
    },
    rows,
    notes,
    lines: [{ name: 'exec', points: [...execs] }],
  };
}

async function coldStart(): Promise<number> {
  const path = temporaryDirectory('cold');
  const started = performance.now();
  const stack = await startStack({
    data: DataDirectory.at(path),
    port: 0,
    dist: join(projectRoot(), 'dist'),
    log: () => undefined,
  });
  const took = performance.now() - started;
  await stack.stop();
  rmSync(path, { recursive: true, force: true });
  return took;
}

async function timed(rounds: number, work: (round: number) => Promise<void>): Promise<number[]> {
  const times = await interleaved(rounds, { it: { timed: roundsOf(work) } });
  return [...(times.it ?? [])];
}

function roundsOf(work: (round: number) => Promise<void>): () => Promise<void> {
  let round = -1;
  return () => work(++round);
}

async function inParallel(count: number, width: number, work: () => Promise<void>): Promise<void> {
  let left = count;
  const worker = async () => {
    while (left-- > 0) await work();
  };
  await Promise.all(Array.from({ length: width }, worker));
}

const growth = (times: ReadonlyMap<number, number>, from: number, to: number): number =>
  (times.get(to) ?? Number.NaN) / (times.get(from) ?? Number.NaN);

const row = (title: string, times: readonly number[]): string[] => [
  title,
  figure(median(times)),
  figure(quantile(times, 0.99)),
  '–',
];

const pidsOf = ({ actors }: Cast): number[] => actors.flatMap(({ pid }) => pid ?? []);

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => void cleanUp().finally(() => process.exit(130)));
}
main().then(
  () => process.exit(0),
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
