/**
 * Checkpoints, forks, rollbacks and rest of sessions with workspaces of 10 MB, 300 MB and 1 GB, through
 * everything (HTTP → durable event → sandbox → durable event → HTTP), beside `docker commit`, `docker
 * pause`, `cp -a` and `tar | zstd`. Interleaved in one run: read the ratios.
 */
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
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';
import { ContainerOfFiles, filling, PlainFiles } from './time-rivals';
import { TimeSubject } from './time-subject';

const SIZES = [
  { name: '10 MB', files: 200, rounds: 5 },
  { name: '300 MB', files: 6_000, rounds: 3 },
  { name: '1 GB', files: 20_000, rounds: 2 },
] as const;
const RESTS = 15;
const CROWD = 10;
/** What the sandbox itself takes of it, without the way there and back and the history. */
const ALONE = 'its driver alone';

async function main(): Promise<void> {
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
    const rows: string[][] = [];
    const figures: Record<string, number> = {};
    for (const size of SIZES) {
      const docker =
        engine && new ContainerOfFiles(new Docker({ socketPath: engine.socketPath }), engine.image);
      const plain = new PlainFiles(join(temporaryDirectory('bench-files'), 'w'));
      if (!wantsJson()) console.error(`${size.name} …`);
      const session = await vmux.created();
      await vmux.run(session, filling('/workspace', 0, size.files));
      await docker?.start(size.files);
      await plain.fill(size.files);
      const measured = await measure(vmux, session, alone, docker, plain, size);
      rows.push(...rowsFor(size.name, measured));
      if (size.name === '1 GB') Object.assign(figures, figuresOf(measured, docker !== null));
      await vmux.stop(session);
      await docker?.end();
      plain.remove();
    }
    printTable(['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'], rows);
    console.log(
      `load ${figure(loadavg()[0] ?? 0)}${noDocker ? `; no docker figures: ${noDocker}` : ''}`,
    );
    if (wantsJson()) printJson(figures);
  } finally {
    await stack.stop();
    await engine?.stop();
    await alone.sweep();
    await releaseAll();
  }
}

interface Measured {
  readonly checkpoints: Times;
  readonly forks: Times;
  readonly rollbacks: Times;
  readonly suspends: Times;
  readonly resumes: Times;
  /** The portable form: the first time and after a hundredth was changed. */
  readonly archives: { readonly first: number; readonly second: number };
  readonly crowd: number;
}

async function measure(
  vmux: TimeSubject,
  session: string,
  alone: DriverAlone,
  docker: ContainerOfFiles | null,
  plain: PlainFiles,
  { files, rounds }: (typeof SIZES)[number],
): Promise<Measured> {
  const first = await vmux.archived(session, await vmux.checkpoint(session));
  await vmux.run(session, filling('/workspace', 0, Math.ceil(files / 100)));
  const second = await vmux.archived(session, await vmux.checkpoint(session));

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
    'tar | zstd -1': { timed: () => plain.pack() },
  });
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
  const rollbacks = await interleaved(rounds, {
    vmux: { timed: () => vmux.rollback(session, last) },
  });
  const id = await alone.idOf(session);
  const suspends = await interleaved(RESTS, {
    vmux: { timed: () => vmux.ask(session, 'suspend'), after: () => vmux.ask(session, 'resume') },
    [ALONE]: { timed: () => alone.driver.suspend(id), after: () => alone.driver.resume(id) },
    'docker pause': docker && { timed: () => docker.pause(), after: () => docker.unpause() },
  });
  const resumes = await interleaved(RESTS, {
    vmux: { before: () => vmux.ask(session, 'suspend'), timed: () => vmux.ask(session, 'resume') },
    [ALONE]: { before: () => alone.driver.suspend(id), timed: () => alone.driver.resume(id) },
    'docker unpause': docker && { before: () => docker.pause(), timed: () => docker.unpause() },
  });
  const crowd = await vmux.crowd(session, last, CROWD);
  return { checkpoints, forks, rollbacks, suspends, resumes, archives: { first, second }, crowd };
}

const single = (title: string, value: number): string[] => [title, figure(value), '–', '–'];

const rowsFor = (size: string, measured: Measured): string[][] => [
  ...rowsOf(`checkpoint of ${size}`, measured.checkpoints, 'vmux'),
  single(`its portable form, made afterwards: ${size}`, measured.archives.first),
  single(`the same after 1 % changed: ${size}`, measured.archives.second),
  ...rowsOf(`fork of ${size} → first exec`, measured.forks, 'vmux'),
  single(`${CROWD} forks of ${size} at once → first execs`, measured.crowd),
  ...rowsOf(`rollback of ${size}`, measured.rollbacks, 'vmux'),
  ...rowsOf(`suspend, ${size}`, measured.suspends, 'vmux'),
  ...rowsOf(`resume, ${size}`, measured.resumes, 'vmux'),
];

const figuresOf = (measured: Measured, hasDocker: boolean): Record<string, number> => ({
  checkpoint_1g_ms: median(measured.checkpoints.vmux ?? []),
  fork_1g_ms: median(measured.forks.vmux ?? []),
  rollback_1g_ms: median(measured.rollbacks.vmux ?? []),
  suspend_ms: median(measured.suspends.vmux ?? []),
  resume_ms: median(measured.resumes.vmux ?? []),
  resume_driver_ms: median(measured.resumes[ALONE] ?? []),
  resume_ms_p99: quantile(measured.resumes.vmux ?? [], 0.99),
  second_checkpoint_ratio: measured.archives.second / measured.archives.first,
  ten_forks_1g_ms: measured.crowd,
  checkpoint_vs_cp_1g: ratioOf(measured.checkpoints, 'vmux', 'cp -a'),
  checkpoint_vs_tar_zstd_1g: ratioOf(measured.checkpoints, 'vmux', 'tar | zstd -1'),
  ...(hasDocker
    ? {
        checkpoint_vs_docker_commit_1g: ratioOf(measured.checkpoints, 'vmux', 'docker commit'),
        resume_vs_docker_unpause: ratioOf(measured.resumes, 'vmux', 'docker unpause'),
        fork_vs_docker_run_1g: ratioOf(measured.forks, 'vmux', 'docker run of a commit'),
      }
    : {}),
});

main().then(
  () => process.exit(0),
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
