import { onlyName, parsed } from '../arguments';
import { exitCodes } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print, say } from '../terminal/output';
import { findCheckpoint } from './checkpoints';

const options = {
  checkpoint: { type: 'string' },
  provider: { type: 'string' },
  replay: { type: 'boolean' },
  force: { type: 'boolean' },
  'allow-base-change': { type: 'boolean' },
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** A new sandbox for a session that has none. */
export async function rehydrate(args: readonly string[]): Promise<number> {
  const given = parsed('rehydrate', args, options);
  const name = onlyName(given, 'rehydrate');
  const sandbox = await findSession(await findServer(), name);
  const from = given.text('checkpoint');
  const { replayed, stopped } = await sandbox.time.rehydrate({
    checkpointId: from === undefined ? undefined : await findCheckpoint(sandbox, from),
    provider: given.text('provider'),
    replay: given.has('replay') || undefined,
    force: given.has('force') || undefined,
    allowBaseChange: given.has('allow-base-change') || undefined,
    wait: !given.has('no-wait'),
  });
  if (given.has('json')) await print(jsonText({ session: sandbox.id, replayed, stopped }));
  else await print(sandbox.id);
  if (!stopped) return 0;
  await say(
    `the replay stopped at ${String(stopped.follows)}, which did not end as it did before: see vmux history ${sandbox.id}`,
  );
  return exitCodes.failed;
}
