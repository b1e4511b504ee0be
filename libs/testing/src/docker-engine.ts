import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { releaseLater, temporaryDirectory } from './cleanup';
import { projectRoot } from './event-store';
import { withSystemPath } from './nats';
import { type RunningProcess, startProcess } from './process';
import { until } from './until';

export interface DockerEngine {
  readonly socketPath: string;
  /** An image made from the distribution's packages: nothing is pulled. */
  readonly image: string;
  /** Of the process that everything of the engine ends with. */
  readonly pid: number;
  readonly daemon: DockerDaemon;
  stop(): Promise<void>;
}

/** dockerd alone: what runs in containers outlives it, and is found again or ended when it is started. */
export interface DockerDaemon {
  readonly isUp: boolean;
  kill(): Promise<void>;
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void;
  /** With `liveRestore` it lets containers run that it finds running; otherwise it ends them. */
  start(options?: { readonly liveRestore?: boolean }): Promise<void>;
}

const needed = ['docker', 'dockerd', 'containerd', 'debootstrap', 'unshare', 'nsenter'];

/** Why no Docker engine can be started here, or nothing when one can. */
export function noDockerEngineBecause(): string | undefined {
  if (process.getuid?.() !== 0) return 'a Docker engine of the test’s own needs root';
  const path = (withSystemPath().PATH ?? '').split(delimiter);
  const missing = needed.filter((name) => !path.some((dir) => existsSync(join(dir, name))));
  return missing.length > 0 ? `${missing.join(', ')} not installed` : undefined;
}

/**
 * A Docker engine of this test's own. It runs in its own process, network and mount namespaces, so that
 * its containers, its bridge, its firewall rules and its mounts end with it, however it ends; its control
 * groups are below a parent of their own.
 */
export async function startDockerEngine(): Promise<DockerEngine> {
  const archive = debianArchive();
  const dir = temporaryDirectory('docker');
  const socketPath = join(dir, 'docker.sock');
  const cgroupParent = `vmux-test-${process.pid}-${Date.now().toString(36)}`;
  releaseLater(() => removeCgroups(cgroupParent));
  const init = await startProcess({
    command: 'unshare',
    // The first process of its namespaces takes in what loses its parent.
    args: [
      ...namespaces,
      '/bin/sh',
      '-c',
      'ip link set lo up && echo up; while :; do sleep 3600 & wait; done',
    ],
    env: withSystemPath(),
    ready: (line) => (line === 'up' ? true : undefined),
  });
  const daemon = new Daemon(dir, cgroupParent, childOf(init.pid));
  await daemon.start();
  const image = 'vmux-test:bookworm';
  run('docker', ['--host', `unix://${socketPath}`, 'import', archive, image]);
  return {
    socketPath,
    image,
    pid: init.pid,
    daemon,
    stop: async () => {
      // Nothing of it is kept, and the death of its first process ends everything in its namespaces.
      await init.kill('SIGKILL');
      await daemon.kill();
      await removeCgroups(cgroupParent);
    },
  };
}

class Daemon implements DockerDaemon {
  private process: RunningProcess<unknown> | undefined;

  constructor(
    private readonly dir: string,
    private readonly cgroupParent: string,
    private readonly initPid: number,
  ) {}

  get isUp(): boolean {
    return this.process !== undefined;
  }

  async start({ liveRestore = false }: { readonly liveRestore?: boolean } = {}): Promise<void> {
    const { dir } = this;
    // One that was killed leaves its number behind, and somebody else may have it by now.
    rmSync(join(dir, 'pid'), { force: true });
    this.process = await startProcess({
      command: 'nsenter',
      args: [
        ...['--target', String(this.initPid), '--net', '--pid', '--mount', 'dockerd'],
        ...['--data-root', join(dir, 'data'), '--exec-root', join(dir, 'exec')],
        ...['--pidfile', join(dir, 'pid'), '--host', `unix://${join(dir, 'docker.sock')}`],
        ...['--cgroup-parent', `/${this.cgroupParent}`, '--bip', '172.31.0.1/16'],
        ...(liveRestore ? ['--live-restore'] : []),
      ],
      env: withSystemPath(),
      ready: (line) => (line.includes('API listen on') ? true : undefined),
      readyTimeoutMs: 60_000,
    });
  }

  async kill(): Promise<void> {
    const { process: running } = this;
    this.process = undefined;
    if (!running) return;
    toGroup(running.pid, 'SIGKILL');
    await running.exited;
    // The next one needs the files that this one has locked.
    await until(() => !toGroup(running.pid, 0), { timeoutMs: 10_000 });
  }

  /** nsenter stops with it, and waits for it. */
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    if (this.process) toGroup(this.process.pid, signal);
  }
}

/** False when nobody is left in it. */
function toGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-pid, signal);
    return true;
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code !== 'ESRCH') throw fault;
    return false;
  }
}

const childOf = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);

const namespaces = [
  '--net',
  '--pid',
  '--fork',
  '--kill-child',
  '--mount',
  '--mount-proc',
  '--propagation',
  'private',
];

/** A Debian of the distribution's packages, made once per checkout, by one process at a time. */
export function debianArchive(): string {
  const cache = join(projectRoot(), 'dist/cache');
  const archive = join(cache, 'bookworm.tar');
  if (existsSync(archive)) return archive;
  mkdirSync(cache, { recursive: true });
  const scratch = temporaryDirectory('debootstrap');
  run('flock', [join(cache, 'lock'), '/bin/sh', '-ec', makeBase, archive, scratch]);
  rmSync(scratch, { recursive: true, force: true });
  return archive;
}

const makeBase = `[ ! -e "$0" ] || exit 0
debootstrap --variant=minbase --include=ca-certificates,python3-minimal bookworm "$1/root"
tar -C "$1/root" --exclude='./var/cache/apt/archives/*.deb' --exclude='./dev/*' -cf "$1/root.tar" .
mv "$1/root.tar" "$0"`;

function run(program: string, args: readonly string[]): void {
  const done = spawnSync(program, args, {
    env: withSystemPath(),
    encoding: 'utf8',
    maxBuffer: 64 << 20,
  });
  if (done.status === 0) return;
  throw new Error(
    `${program} ${args[0]} failed: ${done.error?.message ?? `${done.stderr}${done.stdout}`.slice(-2000)}`,
  );
}

/** Removes what the engine leaves of its groups in every hierarchy, once the last process has left them. */
async function removeCgroups(parent: string): Promise<void> {
  const mounts = '/sys/fs/cgroup';
  for (const top of ['', ...readdirSync(mounts)].map((name) => join(mounts, name, parent))) {
    if (existsSync(top)) await until(() => removedTree(top), { timeoutMs: 10_000 });
  }
}

function removedTree(group: string): boolean {
  for (const entry of readdirSync(group, { withFileTypes: true })) {
    if (entry.isDirectory() && !removedTree(join(group, entry.name))) return false;
  }
  try {
    rmdirSync(group);
    return true;
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'EBUSY') return false;
    throw fault;
  }
}
