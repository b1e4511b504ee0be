import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { NsDriver } from '../../apps/runner-local/src/drivers/ns-driver';
import type { Cast } from './cast';

/** The sandboxes of a session, as their driver recorded them. */
export const sandboxesOf = (directory: string, session: string): string[] =>
  readdirSync(directory)
    .map((name) => join(directory, name))
    .filter((path) => readIfThere(join(path, 'state.json')).includes(`"${session}"`));

/** PID 1 of the session's sandbox. */
export function firstProcessOf(directory: string, session: string): number {
  const [own] = sandboxesOf(directory, session);
  if (!own) throw new Error(`no sandbox of ${session}`);
  return Number(readFileSync(join(own, 'pid'), 'utf8').split(' ')[0]);
}

/** Processor time of everything in the session's sandbox, in clock ticks. */
export function ticksOf(directory: string, session: string): number {
  const [own] = sandboxesOf(directory, session);
  if (!own) throw new Error(`no sandbox of ${session}`);
  const cgroup = `/s-${basename(own)}\n`;
  const inside = readdirSync('/proc').filter(
    (pid) => /^\d+$/.test(pid) && readIfThere(`/proc/${pid}/cgroup`).includes(cgroup),
  );
  return inside.reduce((sum, pid) => {
    const stat = readIfThere(`/proc/${pid}/stat`);
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return sum + Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
  }, 0);
}

/** Destroys every sandbox without its runner: sandboxes outlive everything else by design. */
export async function sweep({ driver: options }: Cast): Promise<void> {
  const driver = new NsDriver(options);
  for (const { id } of await driver.list()) await driver.destroy(id);
  await driver.close();
}

/** A sandbox that is being made or removed has no state yet, or no longer. */
function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (fault) {
    if (!['ENOENT', 'ESRCH'].includes((fault as NodeJS.ErrnoException).code ?? '')) throw fault;
    return '';
  }
}
