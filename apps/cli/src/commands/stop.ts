import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  grace: { type: 'string' },
  force: { type: 'boolean' },
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** Ends the sandboxes of sessions; their logs and histories stay. */
export async function stop(args: readonly string[]): Promise<number> {
  const given = parsed('stop', args, options);
  if (given.positionals.length === 0) throw new UsageError('vmux stop takes one session or more');
  const graceMs = given.duration('grace');
  const server = await findServer();
  for (const name of given.positionals) {
    const sandbox = await findSession(server, name);
    const { endedAt } = await sandbox.info();
    if (endedAt === null) {
      await sandbox.stop({ graceMs, force: given.has('force') || undefined });
      if (!given.has('no-wait')) await sandbox.untilEnded();
    }
    const { status } = await sandbox.info();
    await print(given.has('json') ? jsonText({ session: sandbox.id, status }) : sandbox.id);
  }
  return 0;
}
