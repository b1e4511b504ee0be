/**
 * Checkpoints, forks, rollbacks and rest of sessions with workspaces of 10 MB, 300 MB and 1 GB, through
 * everything (HTTP → durable event → sandbox → durable event → HTTP), beside `docker commit`, `docker
 * pause`, `cp -a` and `tar` with zstd. Interleaved in one run: read the ratios. Writes TIME.md.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import {
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  startDockerEngine,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';
import Docker from 'dockerode';
import { DriverAlone } from './driver-alone';
import { interleaved, ratioOf, rowsOf, type Times } from './interleaved';
import { machineFacts, untilQuiet } from './machine';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';
import { writeTimeResults } from './time-results';
import { ContainerOfFiles, filling, PlainFiles } from './time-rivals';
import { TimeSubject } from './time-subject';
import { WARM_UP, warmUp } from './time-warm-up';

/** Rounds are odd: their median is one of them. */
const SIZES = [
  { key: '10m', name: '10 MB', files: 200, rounds: 15 },
  { key: '300m', name: '300 MB', files: 6_000, rounds: 7 },
  { key: '1g', name: '1 GB', files: 20_000, rounds: 5 },
] as const;
const RESTS = 31;
const IN_A_ROW = 10;
const SECONDS = 5;
const CROWDS = 3;
const CROWD = 10;
/** What the sandbox itself takes of it, without the way there and back and the history. */
const ALONE = 'its driver alone';

const began = performance.now();
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
  const engine = noDocker ? null : await startDockerEngine();
  const dir = temporaryDirectory('bench-time');
  const stack = await startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/cli/src/stack/main.js')],
    env: { ...process.env, DOCKER_HOST: 'unix:///nowhere', VMUX_DATA_DIR: dir, VMUX_PORT: '0' },
    ready: (line) => /^vmux serves at (\S+)/.exec(line)?.[1],
    readyTimeoutMs: 60_000,
  });
  const vmux = new TimeSubject(stack.ready, readFileSync(join(dir, 'api-key'), 'utf8').trim());
  const alone = new DriverAlone(dir);
  try {
    step('warming up');
    const { rows, figures } = await warmUp(vmux);
    for (const size of SIZES) {
      const docker =
        engine && new ContainerOfFiles(new Docker({ socketPath: engine.socketPath }), engine.image);
      const plain = new PlainFiles(join(temporaryDirectory('bench-files'), 'w'));
      step(`${size.name}: filling`);
      const session = await vmux.created();
      await vmux.run(session, filling('/workspace', 0, size.files));
      await docker?.start(size.files);
      await plain.fill(size.files);
      try {
        const measured = await measure(vmux, session, alone, docker, plain, size);
        rows.push(...rowsFor(size.name, measured));
        Object.assign(figures, figuresOf(measured, size.key, docker !== null));
      } finally {
        // An engine cannot end what is paused in it.
        await docker?.end();
      }
      await vmux.stop(session);
      plain.remove();
    }
    step('done');
    facts.push(`the sandboxes’ disks are on ${kindOf(join(dir, 'runner/ns/store'))}`);
    const notes = [...NOTES, ...(noDocker ? [`no docker figures: ${noDocker}`] : [])];
    printTable(['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'], rows);
    for (const note of [...notes, ...facts, `load at the end ${figure(loadavg()[0] ?? 0)}`])
      console.log(note);
    writeTimeResults({ facts, figures, rows, notes });
    if (wantsJson()) printJson(figures);
  } finally {
    const ends = [() => stack.stop(), () => engine?.stop(), () => alone.sweep(), releaseAll];
    // What it failed for is told all the same.
    for (const end of ends) await end()?.catch(console.error);
  }
}

const NOTES = [
  'before each kind of measurement all that is to be written is written, and the machine comes to rest',
  'before a checkpoint one file of 50 kB is written again and synced, also for the rivals; what ends with the answer is the provider’s form, and the portable one is awaited before anything else is measured',
  `every vmux figure: ${WARM_UP.execs} execs, ${WARM_UP.rests} times suspend and resume and ${WARM_UP.rounds} times checkpoint, fork and rollback went before to warm up; every rival had one`,
];

/** In whose files they are made, where that is not the disk itself. */
const kindOf = (directory: string): string =>
  execFileSync('findmnt', ['-n', '-o', 'FSTYPE,SOURCE', '-T', directory])
    .toString()
    .trim()
    .replace(/\s+/g, ', ');

interface Measured {
  readonly checkpoints: Times;
  readonly forks: Times;
  readonly rollbacks: Times;
  readonly suspends: Times;
  readonly resumes: Times;
  readonly resumesInARow: Times;
  /** The portable form: the first time, and each time after a hundredth was changed. */
  readonly archives: { readonly first: number; readonly later: readonly number[] };
  readonly crowds: Times;
}

async function measure(
  vmux: TimeSubject,
  session: string,
  alone: DriverAlone,
  docker: ContainerOfFiles | null,
  plain: PlainFiles,
  { files, rounds }: (typeof SIZES)[number],
): Promise<Measured> {
  await part('portable checkpoints');
  const archived = async () => vmux.archived(session, await vmux.checkpoint(session));
  const first = await archived();
  const later: number[] = [];
  const few = Math.ceil(files / 100);
  for (let at = 0; at < SECONDS; at += 1) {
    await vmux.run(session, filling('/workspace', at * few, (at + 1) * few));
    later.push(await archived());
  }

  await part('checkpoints');
  let last = '';
  const settle = () => vmux.archived(session, last);
  const checkpoints = await interleaved(rounds, {
    vmux: {
      before: () => vmux.run(session, filling('/workspace', 0, 1)),
      timed: async () => {
        last = await vmux.checkpoint(session);
      },
      after: settle,
    },
    'docker commit': docker && {
      before: () => docker.change(),
      timed: () => docker.commit(),
      after: () => docker.removeImage(),
    },
    'cp -a': { timed: () => plain.copy(), after: () => plain.removeCopy() },
    'tar to zstd -1': { timed: () => plain.pack() },
  });
  await part('forks');
  let child = '';
  const forks = await interleaved(rounds, {
    vmux: {
      timed: async () => {
        child = await vmux.fork(session, last);
        await vmux.run(child, ['/bin/true']);
      },
      after: () => vmux.stop(child),
    },
    'docker run of a commit': docker && {
      before: () => docker.commit(),
      timed: () => docker.runCommitted(),
      after: () => docker.removeImage(),
    },
  });
  await part('rollbacks');
  const rollbacks = await interleaved(rounds, {
    vmux: { timed: () => vmux.rollback(session, last) },
  });
  await part('rest');
  const id = await alone.idOf(session);
  const suspends = await interleaved(RESTS, {
    vmux: { timed: () => vmux.ask(session, 'suspend'), after: () => vmux.ask(session, 'resume') },
    [ALONE]: { timed: () => alone.driver.suspend(id), after: () => alone.driver.resume(id) },
    'docker pause': docker && {
      timed: () => docker.pause(),
      after: async () => {
        await docker.heard();
        await docker.unpause();
        await docker.heard();
      },
    },
  });
  const resuming = {
    vmux: { before: () => vmux.ask(session, 'suspend'), timed: () => vmux.ask(session, 'resume') },
    [ALONE]: { before: () => alone.driver.suspend(id), timed: () => alone.driver.resume(id) },
    'docker unpause': docker && {
      before: async () => {
        await docker.pause();
        await docker.heard();
      },
      timed: () => docker.unpause(),
      after: () => docker.heard(),
    },
  };
  const resumes = await interleaved(RESTS, resuming);
  const resumesInARow = await interleaved(3, resuming, IN_A_ROW);
  await part(`${CROWD} forks at once`);
  let children: readonly string[] = [];
  const crowds = await interleaved(CROWDS, {
    vmux: {
      timed: async () => {
        children = await vmux.crowd(session, last, CROWD);
      },
      after: () => Promise.all(children.map((id) => vmux.stop(id))),
    },
  });
  const archives = { first, later };
  return {
    ...{ checkpoints, forks, rollbacks, suspends, resumes, resumesInARow },
    ...{ archives, crowds },
  };
}

const row = (title: string, times: readonly number[]): string[] => [
  title,
  figure(median(times)),
  times.length > 1 ? figure(quantile(times, 0.99)) : '–',
  '–',
];

const rowsFor = (size: string, measured: Measured): string[][] => [
  ...rowsOf(`checkpoint of ${size}`, measured.checkpoints, 'vmux'),
  row(`its portable form, made afterwards: ${size}`, [measured.archives.first]),
  row(`the same after 1 % changed: ${size}`, measured.archives.later),
  ...rowsOf(`fork of ${size} → first exec`, measured.forks, 'vmux'),
  row(`${CROWD} forks of ${size} at once → first execs`, measured.crowds.vmux ?? []),
  ...rowsOf(`rollback of ${size}`, measured.rollbacks, 'vmux'),
  ...rowsOf(`suspend, ${size}`, measured.suspends, 'vmux'),
  ...rowsOf(`resume, ${size}`, measured.resumes, 'vmux'),
  ...rowsOf(`resume, ${size}, ${IN_A_ROW} in a row`, measured.resumesInARow, 'vmux'),
];

/** What has no size in its name is of the last one. */
function figuresOf(measured: Measured, size: string, hasDocker: boolean): Record<string, number> {
  const { checkpoints, forks, rollbacks, suspends, resumes, resumesInARow } = measured;
  const { archives, crowds } = measured;
  return {
    [`checkpoint_vs_cp_${size}`]: ratioOf(checkpoints, 'vmux', 'cp -a'),
    [`checkpoint_vs_tar_zstd_${size}`]: ratioOf(checkpoints, 'vmux', 'tar to zstd -1'),
    [`checkpoint_${size}_ms`]: median(checkpoints.vmux ?? []),
    [`fork_${size}_ms`]: median(forks.vmux ?? []),
    [`rollback_${size}_ms`]: median(rollbacks.vmux ?? []),
    [`ten_forks_${size}_ms`]: median(crowds.vmux ?? []),
    suspend_ms: median(suspends.vmux ?? []),
    resume_ms: median(resumes.vmux ?? []),
    resume_in_a_row_ms: median(resumesInARow.vmux ?? []),
    resume_driver_ms: median(resumes[ALONE] ?? []),
    resume_ms_p99: quantile(resumes.vmux ?? [], 0.99),
    second_checkpoint_ratio: median(archives.later) / archives.first,
    ...(hasDocker
      ? {
          [`checkpoint_vs_docker_commit_${size}`]: ratioOf(checkpoints, 'vmux', 'docker commit'),
          [`fork_vs_docker_run_${size}`]: ratioOf(forks, 'vmux', 'docker run of a commit'),
          suspend_vs_docker_pause: ratioOf(suspends, 'vmux', 'docker pause'),
          resume_vs_docker_unpause: ratioOf(resumes, 'vmux', 'docker unpause'),
        }
      : {}),
  };
}

main().then(
  () => process.exit(0),
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
