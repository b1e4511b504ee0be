import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** A process, and when it was started: a number alone may by now be another's. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly started: string;
}

/** Null when there is no such process any more. */
export function identityOf(pid: number): ProcessIdentity | null {
  const started = process.platform === 'linux' ? startedOnLinux(pid) : startedByPs(pid);
  return started === null ? null : { pid, started };
}

export const isAlive = ({ pid, started }: ProcessIdentity): boolean =>
  identityOf(pid)?.started === started;

function startedOnLinux(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may hold anything: fields are counted from behind it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return fields[0] === 'Z' ? null : `${boot}:${fields[19]}`;
  } catch (fault) {
    const { code } = fault as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return null;
    throw fault;
  }
}

function startedByPs(pid: number): string | null {
  const said = spawnSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' });
  return said.status === 0 ? said.stdout.trim() : null;
}

/** SIGTERM, then SIGKILL after the grace; only if it is still the same process. */
export async function endProcess(target: ProcessIdentity, graceMs: number): Promise<void> {
  for (const [signal, waitMs] of [
    ['SIGTERM', graceMs],
    // One that waits for a slow disk ends when the disk has answered.
    ['SIGKILL', 60_000],
  ] as const) {
    if (!isAlive(target)) return;
    process.kill(target.pid, signal);
    const deadline = Date.now() + waitMs;
    while (isAlive(target) && Date.now() < deadline)
      await new Promise((done) => setTimeout(done, 25));
  }
  if (isAlive(target)) throw new Error(`process ${target.pid} does not end`);
}
