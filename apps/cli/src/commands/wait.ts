import { onlyName, parsed } from '../arguments';
import { Failure } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';
import { exitCodeOf } from './follow';

/** Waits for a command, the newest one when none is named, and ends as it did. */
export async function wait(args: readonly string[]): Promise<number> {
  const given = parsed('wait', args, { exec: { type: 'string' }, json: { type: 'boolean' } });
  const sandbox = await findSession(await findServer(), onlyName(given, 'wait'));
  const id = given.text('exec') ?? (await sandbox.commands.list())[0]?.id;
  if (id === undefined)
    throw new Failure(
      `${sandbox.id} has run nothing yet`,
      `run something: vmux exec ${sandbox.id} -- …`,
    );
  const ending = await sandbox.commands.get(id).ended();
  if (given.has('json')) await print(jsonText({ session: sandbox.id, exec: id, ...ending }));
  return exitCodeOf(ending);
}
