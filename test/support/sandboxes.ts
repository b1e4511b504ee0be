import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
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
    if ((fault as NodeJS.ErrnoException).code !== 'ENOENT') throw fault;
    return '';
  }
}
