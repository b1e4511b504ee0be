import { onlyName, parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  to: { type: 'string' },
  'allow-base-change': { type: 'boolean' },
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** To another provider, under the same id. */
export async function move(args: readonly string[]): Promise<number> {
  const given = parsed('move', args, options);
  const name = onlyName(given, 'move');
  const provider = given.text('to');
  if (provider === undefined)
    throw new UsageError('vmux move needs --to PROVIDER', 'as in: vmux move @last --to docker');
  const sandbox = await findSession(await findServer(), name);
  await sandbox.time.move(provider, {
    allowBaseChange: given.has('allow-base-change') || undefined,
    wait: !given.has('no-wait'),
  });
  await print(given.has('json') ? jsonText({ session: sandbox.id, provider }) : sandbox.id);
  return 0;
}
