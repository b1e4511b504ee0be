import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';
import { findCheckpoint } from './checkpoints';

const options = {
  'allow-base-change': { type: 'boolean' },
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** Goes back to a checkpoint. */
export async function rollback(args: readonly string[]): Promise<number> {
  const given = parsed('rollback', args, options);
  const [name, which, ...more] = given.positionals;
  if (name === undefined || which === undefined || more.length > 0)
    throw new UsageError(
      'vmux rollback takes a session and a checkpoint',
      'as in: vmux rollback @last before-upgrade (see vmux checkpoints)',
    );
  const sandbox = await findSession(await findServer(), name);
  const checkpointId = await findCheckpoint(sandbox, which);
  await sandbox.time.rollback(checkpointId, {
    allowBaseChange: given.has('allow-base-change') || undefined,
    wait: !given.has('no-wait'),
  });
  const done = { session: sandbox.id, checkpoint: checkpointId };
  await print(given.has('json') ? jsonText(done) : sandbox.id);
  return 0;
}
