import { onlyName, parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession, rememberLast } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';
import { findCheckpoint } from './checkpoints';

const options = {
  checkpoint: { type: 'string' },
  at: { type: 'string' },
  count: { type: 'string' },
  name: { type: 'string' },
  provider: { type: 'string' },
  json: { type: 'boolean' },
} as const;

/** New sessions with the files of one that exists, which goes on untouched. */
export async function fork(args: readonly string[]): Promise<number> {
  const given = parsed('fork', args, options);
  const name = onlyName(given, 'fork');
  const from = given.text('checkpoint');
  const at = given.number('at');
  if (from !== undefined && at !== undefined)
    throw new UsageError('--checkpoint and --at exclude each other');
  const count = given.number('count');
  if (count !== undefined && (count < 1 || count > 100))
    throw new UsageError('--count takes 1 to 100');
  const sandbox = await findSession(await findServer(), name);
  const children = await sandbox.time.fork({
    checkpointId: from === undefined ? undefined : await findCheckpoint(sandbox, from),
    at,
    count,
    name: given.text('name'),
    provider: given.text('provider'),
  });
  const last = children.at(-1);
  if (last !== undefined) rememberLast(last);
  if (given.has('json')) await print(jsonText({ session: sandbox.id, forks: children }));
  else for (const child of children) await print(child);
  return 0;
}
