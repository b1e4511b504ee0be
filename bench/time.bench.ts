/**
 * Checkpoints, forks, rollbacks and rest of sessions with workspaces of 10 MB, 300 MB and 1 GB, through
 * everything (HTTP → durable event → sandbox → durable event → HTTP), beside `docker commit`, `docker
 * pause`, `cp -a` and `tar | zstd`. Interleaved in one run: read the ratios.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
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
import { NsDriver } from '../apps/runner-local/src/drivers/ns-driver';
import { interleaved, ratioOf, rowsOf, type Times } from './interleaved';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';

const FILE_BYTES = 51_200;
const SIZES = [
  { name: '10 MB', files: 200, rounds: 5 },
  { name: '300 MB', files: 6_000, rounds: 3 },
  { name: '1 GB', files: 20_000, rounds: 2 },
] as const;
const RESTS = 15;
const CROWD = 10;

/** Files of random bytes, two hundred to a directory; `from` and `to` say which. */
const filling = (directory: string, from: number, to: number): readonly string[] => [
  'python3',
  '-c',
  `import os
for i in range(${from}, ${to}):
  d = '${directory}/%d' % (i // 200)
  os.makedirs(d, exist_ok=True)
  open('%s/%d' % (d, i), 'wb').write(os.urandom(${FILE_BYTES}))
os.sync()`,
];

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
  const vmux = new Subject(stack.ready, readFileSync(join(dir, 'api-key'), 'utf8').trim());
  try {
    const rows: string[][] = [];
    const figures: Record<string, number> = {};
    for (const size of SIZES) {
      const docker =
        engine && new Rival(new Docker({ socketPath: engine.socketPath }), engine.image);
      const plain = new PlainFiles(join(temporaryDirectory('bench-files'), 'w'));
      if (!wantsJson()) console.error(`${size.name} …`);
      const session = await vmux.created();
      await vmux.run(session, filling('/workspace', 0, size.files));
      await docker?.start(size.files);
      await plain.fill(size.files);
      const measured = await measure(vmux, session, docker, plain, size);
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
    await sweep(dir);
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
  vmux: Subject,
  session: string,
  docker: Rival | null,
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
  const suspends = await interleaved(RESTS, {
    vmux: { timed: () => vmux.ask(session, 'suspend'), after: () => vmux.ask(session, 'resume') },
    'docker pause': docker && { timed: () => docker.pause(), after: () => docker.unpause() },
  });
  const resumes = await interleaved(RESTS, {
    vmux: { before: () => vmux.ask(session, 'suspend'), timed: () => vmux.ask(session, 'resume') },
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

/** vmux as a client sees it: every call waits until it is done. */
class Subject {
  constructor(
    private readonly url: string,
    private readonly key: string,
  ) {}

  async created(): Promise<string> {
    const spec = { resources: { diskMiB: 4096, memoryMiB: 2048, cpus: 2 } };
    const { id } = await this.call('POST', '/v1/sessions', { name: 'bench', ...spec });
    await this.run(id, ['/bin/true']);
    return id;
  }

  async run(session: string, argv: readonly string[]): Promise<void> {
    const path = `/v1/sessions/${session}/execs?wait=300s`;
    const { exit } = await this.call('POST', path, { argv });
    if (exit?.code !== 0) throw new Error(`${argv[0]}: ${JSON.stringify(exit)}`);
  }

  async ask(session: string, verb: string, body: object = {}): Promise<Json> {
    return this.call('POST', `/v1/sessions/${session}/${verb}?wait=300s`, body);
  }

  async checkpoint(session: string): Promise<string> {
    return (await this.ask(session, 'checkpoints')).checkpointId;
  }

  async rollback(session: string, checkpointId: string): Promise<void> {
    const { session: after } = await this.ask(session, 'rollback', { checkpointId });
    if (after?.status !== 'running') throw new Error('not rolled back');
  }

  async fork(session: string, checkpointId: string): Promise<string> {
    const { forks } = await this.ask(session, 'fork', { checkpointId });
    return forks[0];
  }

  async crowd(session: string, checkpointId: string, count: number): Promise<number> {
    const started = performance.now();
    const { forks } = await this.ask(session, 'fork', { checkpointId, count });
    await Promise.all(forks.map((id: string) => this.run(id, ['/bin/true'])));
    const took = performance.now() - started;
    await Promise.all(forks.map((id: string) => this.stop(id)));
    return took;
  }

  /** How long the portable form took, once it is there. */
  async archived(session: string, checkpointId: string): Promise<number> {
    for (;;) {
      const { text } = await this.request('GET', `/v1/sessions/${session}/events`);
      const at = (type: string, id: (data: Json) => string) =>
        text
          .split('\n')
          .filter((line) => line.includes(`"${type}"`))
          .map((line) => JSON.parse(line) as Json)
          .find(({ data }) => id(data) === checkpointId)?.data.at as number | undefined;
      const taken = at('CheckpointTaken', ({ checkpoint }) => checkpoint.checkpointId);
      const archived = at('CheckpointArchived', (data) => data.checkpointId);
      if (at('ArchiveFailed', (data) => data.checkpointId)) throw new Error('not archived');
      if (taken !== undefined && archived !== undefined) return archived - taken;
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  async stop(session: string): Promise<void> {
    await this.call('POST', `/v1/sessions/${session}/stop?grace=0ms`, {});
  }

  private async call(method: string, path: string, body: object): Promise<Json> {
    const { status, text } = await this.request(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`);
    return JSON.parse(text);
  }

  private async request(method: string, path: string, body?: object) {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.key}`,
        ...(body ? { 'content-type': 'application/json' } : {}),
      },
      body: body && JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  }
}

// biome-ignore lint/suspicious/noExplicitAny: what an answer holds is known by who asked for it
type Json = any;

/** The same files in a container. */
class Rival {
  private container: Docker.Container | undefined;
  private image: string | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly base: string,
  ) {}

  async start(files: number): Promise<void> {
    this.container = await this.docker.createContainer({
      Image: this.base,
      Cmd: ['sleep', '100000'],
    });
    await this.container.start();
    await this.exec(filling('/workspace', 0, files));
  }

  change(): Promise<void> {
    return this.exec(filling('/workspace', 0, 1));
  }

  async commit(): Promise<void> {
    const { Id } = await this.own().commit({ pause: true });
    this.image = Id;
  }

  async runCommitted(): Promise<void> {
    const made = await this.docker.createContainer({ Image: this.image, Cmd: ['/bin/true'] });
    await made.start();
    await made.wait();
    await made.remove({ force: true });
  }

  async removeImage(): Promise<void> {
    if (this.image) await this.docker.getImage(this.image).remove({ force: true });
    this.image = undefined;
  }

  pause(): Promise<unknown> {
    return this.own().pause();
  }

  unpause(): Promise<unknown> {
    return this.own().unpause();
  }

  end(): Promise<unknown> {
    return this.own().remove({ force: true });
  }

  private own(): Docker.Container {
    if (!this.container) throw new Error('not started');
    return this.container;
  }

  private async exec(argv: readonly string[]): Promise<void> {
    const exec = await this.own().exec({ Cmd: [...argv], AttachStdout: true, AttachStderr: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await new Promise((done) => stream.on('close', done).on('end', done));
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`docker exec ended with ${ExitCode}`);
  }
}

/** The same files in a directory. */
class PlainFiles {
  constructor(private readonly directory: string) {}

  async fill(files: number): Promise<void> {
    mkdirSync(this.directory, { recursive: true });
    const [program = '', ...args] = filling(this.directory, 0, files);
    await ended(program, args);
  }

  copy(): Promise<void> {
    return ended('cp', ['-a', this.directory, `${this.directory}-copy`]);
  }

  async removeCopy(): Promise<void> {
    rmSync(`${this.directory}-copy`, { recursive: true });
  }

  pack(): Promise<void> {
    const script = 'tar -C "$0" -cf - . | zstd -1 -q -f -o "$0.tar.zst"';
    return ended('sh', ['-c', script, this.directory]);
  }

  remove(): void {
    for (const path of [this.directory, `${this.directory}.tar.zst`])
      rmSync(path, { recursive: true, force: true });
  }
}

const ended = (program: string, args: readonly string[]): Promise<void> =>
  new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'ignore' });
    child.on('error', reject);
    child.on('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`${program} ended with ${code}`)),
    );
  });

/** Sandboxes outlive the stack. */
async function sweep(dir: string): Promise<void> {
  const native = join(projectRoot(), 'dist/native');
  const driver = new NsDriver({
    dataDir: join(dir, 'runner/ns'),
    launcherPath: join(native, 'vmux-ns'),
    supervisorPath: join(native, 'vmux-supervisor'),
  });
  for (const { id } of await driver.list()) await driver.destroy(id);
  await driver.close();
}

main().then(
  () => process.exit(0),
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
