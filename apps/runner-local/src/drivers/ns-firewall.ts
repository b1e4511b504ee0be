import { spawn } from 'node:child_process';
import { readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { DriverUnavailable } from '@vmux/runner-kit';
import { ensureFirewall, isSandboxInterface, removeFirewall } from './ns-egress';

/** The network that the firewall is of: a lock on it leaves no file, and each has its own. */
const LOCK = '/proc/self/ns/net';
const LOCKED_WITHIN_SECONDS = 30;

/**
 * Runs what makes a sandbox's interface, with the firewall in place before and until it is there: nobody
 * takes the firewall away meanwhile.
 */
export async function behindFirewall<T>(work: () => Promise<T>): Promise<T> {
  const marker = await markerOfHere();
  return locked('--shared', async () => {
    // Written first: what a killed process leaves is found again by it.
    await writeFile(marker, '', { mode: 0o600 });
    await ensureFirewall();
    return work();
  });
}

/**
 * Takes the firewall away again when no sandbox has an interface any more, of this runner or another;
 * also what a runner left that was killed.
 */
export async function dropUnusedFirewall(): Promise<void> {
  if (process.platform !== 'linux') return;
  const marker = await markerOfHere();
  if (!(await isThere(marker))) return;
  await locked('--exclusive', async () => {
    if ((await isThere(marker)) && !(await isInUse())) {
      await removeFirewall();
      await rm(marker, { force: true });
    }
  });
}

/** Goes with the machine, as the firewall does. One for each network: each has a firewall of its own. */
async function markerOfHere(): Promise<string> {
  const network = (await readlink('/proc/self/ns/net')).replace(/\D/g, '');
  return `/run/vmux-firewall-${network}`;
}

const isThere = (path: string): Promise<boolean> =>
  readFile(path).then(
    () => true,
    (fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT' || fault.code === 'EACCES') return false;
      throw fault;
    },
  );

async function isInUse(): Promise<boolean> {
  const lines = (await readFile('/proc/self/net/dev', 'utf8')).split('\n');
  return lines.some((line) => isSandboxInterface(line.split(':')[0]?.trim() ?? ''));
}

/** Held by a child that ends with this process, however that ends. */
async function locked<T>(kind: '--shared' | '--exclusive', work: () => Promise<T>): Promise<T> {
  const wait = ['--wait', String(LOCKED_WITHIN_SECONDS)];
  const holder = spawn('flock', [kind, ...wait, LOCK, '/bin/sh', '-c', 'echo; exec cat'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' },
  });
  const ended = new Promise<void>((resolve) => {
    holder.once('close', () => resolve());
    holder.once('error', () => resolve());
  });
  holder.stdin.on('error', () => undefined);
  try {
    const held = new Promise<boolean>((resolve) => {
      holder.stdout.once('data', () => resolve(true));
      void ended.then(() => resolve(false));
    });
    if (!(await held)) throw new DriverUnavailable('the host’s firewall is being changed for long');
    return await work();
  } finally {
    holder.stdin.end();
    await ended;
  }
}
