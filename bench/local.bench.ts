/**
 * A sandbox of the local runner, without the service around it: an exec of /bin/true through the driver and
 * the supervisor beside `docker exec` through dockerode and a bare spawn, create → first exec beside
 * `docker run`, destroy, a keystroke's echo, and a hundred sandboxes at once. Interleaved in one run: read
 * the ratios.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import type { Duplex } from 'node:stream';
import { type ExecInput, openInput, type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { noDockerEngineBecause, releaseAll, startDockerEngine } from '@vmux/testing';
import Docker from 'dockerode';
import type { NsDriver } from '../apps/runner-local/src/drivers/ns-driver';
import { firstProcessOf, newNsDriver, nsOptions } from '../apps/runner-local/test/ns-target';
import { interleaved, ratioOf, rowsOf, type Times } from './interleaved';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';

const EXECS = 200;
const CREATES = 20;
const KEYSTROKES = 300;
const CROWD = 100;
const MIB = 1024 * 1024;
const LIMITS = { cpus: 2, memoryMiB: 512, diskMiB: 1024, pids: 1024 };
const ENV = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' };

async function main(): Promise<void> {
  const noDocker = noDockerEngineBecause();
  const engine = noDocker ? null : await startDockerEngine();
  const docker =
    engine && new DockerRival(new Docker({ socketPath: engine.socketPath }), engine.image);
  const options = nsOptions();
  const vmux = new Subject(newNsDriver(options));

  const box = await vmux.create();
  await docker?.start();
  const execs = await interleaved(EXECS, {
    vmux: { timed: () => vmux.exec(box), after: () => vmux.forget(box) },
    'docker exec': docker && { timed: () => docker.exec() },
    spawn: { timed: spawned },
  });
  const echoes = await measureEchoes(vmux, box, docker);
  const { creates, destroys } = await measureCreates(vmux, docker);
  const crowd = await measureCrowd(vmux, (id) => firstProcessOf(options, id));
  await vmux.destroy(box);
  await engine?.stop();

  printTable(
    ['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'],
    [
      ...rowsOf('exec /bin/true', execs, 'vmux'),
      ...rowsOf('create → first exec', creates, 'vmux'),
      ...rowsOf('destroy', destroys, 'vmux'),
      ...rowsOf('a keystroke’s echo', echoes, 'vmux'),
      [
        `create → first exec: vmux, ${CROWD} at once`,
        figure(median(crowd.createMs)),
        figure(quantile(crowd.createMs, 0.99)),
      ],
    ],
  );
  console.log(
    `\n${CROWD} sandboxes at once, all answering: ${figure(crowd.chargedMiB)} MiB charged to each, ` +
      `${figure(crowd.supervisorMiB)} MiB of it its supervisor’s; the machine has ${figure(crowd.hostMiB)} MiB ` +
      `less for each; created in ${figure(crowd.allMs / 1000)} s`,
  );
  const load = `${cpus().length} cores, load ${figure(loadavg()[0] ?? 0)}`;
  console.log(noDocker ? `${load}; no docker figures: ${noDocker}` : load);
  if (!wantsJson()) return;
  printJson({
    exec_ms_p50: median(execs.vmux ?? []),
    exec_vs_spawn: ratioOf(execs, 'vmux', 'spawn'),
    create_ms_p50: median(creates.vmux ?? []),
    destroy_ms_p50: median(destroys.vmux ?? []),
    pty_echo_ms_p50: median(echoes.vmux ?? []),
    memory_per_sandbox_mib: crowd.chargedMiB,
    host_memory_per_sandbox_mib: crowd.hostMiB,
    ...(docker
      ? {
          exec_vs_docker: ratioOf(execs, 'vmux', 'docker exec'),
          create_vs_docker: ratioOf(creates, 'vmux', 'docker run'),
          destroy_vs_docker: ratioOf(destroys, 'vmux', 'docker rm -f'),
        }
      : {}),
  });
}

async function measureCreates(
  vmux: Subject,
  docker: DockerRival | null,
): Promise<{ creates: Times; destroys: Times }> {
  const boxes: Box[] = [];
  const containers: Docker.Container[] = [];
  let ended: Docker.Container | undefined;
  const creates = await interleaved(CREATES, {
    vmux: {
      timed: async () => {
        const box = await vmux.create();
        boxes.push(box);
        await vmux.exec(box);
      },
    },
    'docker run': docker && {
      timed: async () => {
        ended = await docker.run(['/bin/true']);
      },
      after: async () => ended?.remove(),
    },
    'docker create + start + exec': docker && {
      timed: async () => {
        const container = await docker.run(['sleep', '100000'], false);
        containers.push(container);
        await docker.exec(container);
      },
    },
  });
  await vmux.destroy(takeFrom(boxes));
  const destroys = await interleaved(CREATES - 1, {
    vmux: { timed: () => vmux.destroy(takeFrom(boxes)) },
    'docker rm -f': docker && { timed: () => takeFrom(containers).remove({ force: true }) },
  });
  for (const box of boxes) await vmux.destroy(box);
  for (const container of containers) await container.remove({ force: true });
  return { creates, destroys };
}

async function measureEchoes(vmux: Subject, box: Box, docker: DockerRival | null): Promise<Times> {
  const own = await vmux.terminal(box);
  const theirs = docker ? await docker.terminal() : null;
  const times = await interleaved(KEYSTROKES, {
    vmux: { timed: () => own.type('x') },
    'docker exec -t': theirs && { timed: () => theirs.type('x') },
  });
  await own.close();
  await theirs?.close();
  return times;
}

async function measureCrowd(vmux: Subject, firstProcess: (id: SandboxId) => number) {
  const before = availableMiB();
  const started = performance.now();
  const createMs: number[] = [];
  const boxes = await Promise.all(
    Array.from({ length: CROWD }, async () => {
      const began = performance.now();
      const box = await vmux.create();
      await vmux.exec(box);
      createMs.push(performance.now() - began);
      return box;
    }),
  );
  const allMs = performance.now() - started;
  const charged: number[] = [];
  for (const box of boxes) {
    const { memoryBytes } = await box.client.figures();
    if (memoryBytes === undefined) throw new Error('a sandbox does not tell its memory');
    charged.push(memoryBytes / MIB);
  }
  const hostMiB = (before - availableMiB()) / CROWD;
  const supervisorMiB = median(boxes.map(({ id }) => proportionalMiB(firstProcess(id))));
  await Promise.all(boxes.map((box) => vmux.destroy(box)));
  return { createMs, allMs, hostMiB, supervisorMiB, chargedMiB: median(charged) };
}

interface Box {
  readonly id: SandboxId;
  readonly client: SupervisorClient;
}

interface Terminal {
  /** Resolves when the echo is there. */
  type(key: string): Promise<void>;
  close(): Promise<void>;
}

class Subject {
  private ended: string | undefined;

  constructor(private readonly driver: NsDriver) {}

  async create(): Promise<Box> {
    const instance = randomBytes(8).toString('hex');
    const id = { sessionId: 'bench-0000', epoch: 1, instance };
    await this.driver.create({ id, limits: LIMITS, image: null, egress: false, gpu: null });
    const client = await SupervisorClient.connect(await this.driver.openPipe(id), id);
    return { id, client };
  }

  /** Started, and its output read to its end, which says how it ended. */
  async exec({ client }: Box): Promise<void> {
    const execId = randomBytes(8).toString('hex');
    this.ended = execId;
    const started = client.start({ execId, argv: ['/bin/true'], env: ENV });
    for await (const item of client.read(execId)) {
      if (item.kind !== 'end') continue;
      const { outcome } = item.exec;
      if (outcome.kind !== 'exited' || outcome.code !== 0) throw new Error(JSON.stringify(outcome));
    }
    await started;
  }

  async forget({ client }: Box): Promise<void> {
    if (this.ended) await client.release(this.ended);
  }

  async terminal({ client }: Box): Promise<Terminal> {
    const execId = randomBytes(8).toString('hex');
    const argv = ['sh', '-c', 'stty -icanon min 1; exec cat >/dev/null'];
    await client.start({ execId, argv, env: ENV, stdin: true, pty: { cols: 80, rows: 24 } });
    const output = client.read(execId);
    const input: ExecInput = openInput(client, execId);
    return {
      type: async (key) => {
        const echo = output.next();
        await input.write(Buffer.from(key));
        await echo;
      },
      close: async () => {
        await output.return(undefined);
        await client.cancel(execId, 0);
      },
    };
  }

  async destroy({ id, client }: Box): Promise<void> {
    client.close();
    await this.driver.destroy(id);
  }
}

/** What one would use instead. */
class DockerRival {
  private container: Docker.Container | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly image: string,
  ) {}

  async start(): Promise<void> {
    this.container = await this.run(['sleep', '100000'], false);
  }

  /** What `docker run` asks of the engine, without the time that the CLI takes to start. */
  async run(command: readonly string[], toItsEnd = true): Promise<Docker.Container> {
    const container = await this.docker.createContainer({
      Image: this.image,
      Cmd: [...command],
      HostConfig: { NetworkMode: 'none' },
    });
    if (!toItsEnd) {
      await container.start();
      return container;
    }
    const stream = await container.attach({ stream: true, stdout: true, stderr: true });
    stream.resume();
    const ended = container.wait({ condition: 'next-exit' });
    await container.start();
    const { StatusCode } = await ended;
    if (StatusCode !== 0) throw new Error(`docker run ended with ${StatusCode}`);
    return container;
  }

  async exec(container = this.container): Promise<void> {
    if (!container) throw new Error('not started');
    const exec = await container.exec({ Cmd: ['/bin/true'], AttachStdout: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await once(stream, 'close');
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`docker exec ended with ${ExitCode}`);
  }

  async terminal(): Promise<Terminal> {
    if (!this.container) throw new Error('not started');
    const exec = await this.container.exec({
      Cmd: ['sh', '-c', 'stty -icanon min 1; exec cat >/dev/null'],
      AttachStdin: true,
      AttachStdout: true,
      Tty: true,
    });
    const stream: Duplex = await exec.start({ hijack: true, stdin: true });
    return {
      type: async (key) => {
        const echo = once(stream, 'data');
        stream.write(key);
        await echo;
      },
      close: async () => void stream.destroy(),
    };
  }
}

const spawned = (): Promise<void> =>
  new Promise((resolve, reject) => {
    const child = spawn('/bin/true', { stdio: 'ignore' });
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`ended with ${code}`))));
  });

function takeFrom<T>(items: T[]): T {
  const item = items.pop();
  if (item === undefined) throw new Error('nothing is left');
  return item;
}

const kibibytes = (path: string, name: string): number =>
  Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(readFileSync(path, 'utf8'))?.[1]);
const availableMiB = (): number => kibibytes('/proc/meminfo', 'MemAvailable') / 1024;
const proportionalMiB = (pid: number): number =>
  kibibytes(`/proc/${pid}/smaps_rollup`, 'Pss') / 1024;

main().then(
  async () => {
    await releaseAll();
    process.exit(0);
  },
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
