import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  'no-wait': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** Freezes sessions where they are: memory and processes stay, no processor is used. */
export const suspend = (args: readonly string[]): Promise<number> => rest('suspend', args);

/** Suspends or resumes every session that is named. */
export async function rest(verb: 'suspend' | 'resume', args: readonly string[]): Promise<number> {
  const given = parsed(verb, args, options);
  if (given.positionals.length === 0)
    throw new UsageError(
      `vmux ${verb} takes one session or more`,
      'name it by its id, the beginning of its id, or @last',
    );
  const server = await findServer();
  for (const name of given.positionals) {
    const sandbox = await findSession(server, name);
    await sandbox.time[verb]({ wait: !given.has('no-wait') });
    const { status } = await sandbox.info();
    await print(given.has('json') ? jsonText({ session: sandbox.id, status }) : sandbox.id);
  }
  return 0;
}
