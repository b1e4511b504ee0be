import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { print } from '../terminal/output';

/** Removes sessions with their logs, histories and keys. */
export async function rm(args: readonly string[]): Promise<number> {
  const given = parsed('rm', args, { force: { type: 'boolean', short: 'f' } });
  if (given.positionals.length === 0) throw new UsageError('vmux rm takes one session or more');
  const server = await findServer();
  for (const name of given.positionals) {
    const sandbox = await findSession(server, name);
    await sandbox.delete({ force: given.has('force') || undefined });
    await print(sandbox.id);
  }
  return 0;
}
