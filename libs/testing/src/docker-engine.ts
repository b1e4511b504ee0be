import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { releaseLater, temporaryDirectory } from './cleanup';
import { projectRoot } from './event-store';
import { withSystemPath } from './nats';
import { startProcess } from './process';
import { until } from './until';

export interface DockerEngine {
  readonly socketPath: string;
  /** An image made from the distribution's packages: nothing is pulled. */
  readonly image: string;
  readonly pid: number;
  stop(): Promise<void>;
}

const needed = ['docker', 'dockerd', 'containerd', 'debootstrap', 'unshare'];

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
  const script = `ip link set lo up && exec dockerd --data-root "$0/data" --exec-root "$0/exec" --pidfile "$0/pid" \
    --host "unix://$0/docker.sock" --cgroup-parent /${cgroupParent} --bip 172.31.0.1/16`;
  const engine = await startProcess({
    command: 'unshare',
    args: [...namespaces, '/bin/sh', '-c', script, dir],
    env: withSystemPath(),
    ready: (line) => (line.includes('API listen on') ? true : undefined),
    readyTimeoutMs: 60_000,
  });
  const image = 'vmux-test:bookworm';
  run('docker', ['--host', `unix://${socketPath}`, 'import', archive, image]);
  return {
    socketPath,
    image,
    pid: engine.pid,
    stop: async () => {
      // Nothing of it is kept, and the death of its first process ends everything in its namespaces.
      await engine.kill('SIGKILL');
      await removeCgroups(cgroupParent);
    },
  };
}

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
