import { onlyName, parsed } from '../arguments';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

/** Everything that is known of a session, and its commands, the newest first. */
export async function inspect(args: readonly string[]): Promise<number> {
  const given = parsed('inspect', args, { json: { type: 'boolean' } });
  const sandbox = await findSession(await findServer(), onlyName(given, 'inspect'));
  const [session, execs] = await Promise.all([sandbox.info(), sandbox.commands.list()]);
  await print(jsonText({ session, execs }, given.has('json') ? undefined : 2));
  return 0;
}
