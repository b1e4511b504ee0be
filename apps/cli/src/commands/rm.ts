import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  force: { type: 'boolean', short: 'f' },
  json: { type: 'boolean' },
} as const;

/** Removes sessions with their logs, histories and keys. */
export async function rm(args: readonly string[]): Promise<number> {
  const given = parsed('rm', args, options);
  if (given.positionals.length === 0) throw new UsageError('vmux rm takes one session or more');
  const server = await findServer();
  for (const name of given.positionals) {
    const sandbox = await findSession(server, name);
    await sandbox.delete({ force: given.has('force') || undefined });
    await print(given.has('json') ? jsonText({ session: sandbox.id, deleted: true }) : sandbox.id);
  }
  return 0;
}
