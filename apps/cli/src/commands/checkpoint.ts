import { onlyName, parsed } from '../arguments';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  name: { type: 'string' },
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** Keeps the files of a session as they are now. */
export async function checkpoint(args: readonly string[]): Promise<number> {
  const given = parsed('checkpoint', args, options);
  const sandbox = await findSession(await findServer(), onlyName(given, 'checkpoint'));
  const taken = await sandbox.time.checkpoint({
    name: given.text('name'),
    wait: !given.has('no-wait'),
  });
  await print(given.has('json') ? jsonText({ session: sandbox.id, ...taken }) : taken.id);
  return 0;
}
