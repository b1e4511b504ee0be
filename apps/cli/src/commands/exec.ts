import { commandOf, onlyName, parsed } from '../arguments';
import { exitCodes } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { hasInput } from '../terminal/input';
import { print } from '../terminal/output';
import { exitCodeOf, follow, variablesFrom } from './follow';

const options = {
  detach: { type: 'boolean', short: 'd' },
  env: { type: 'string', short: 'e', multiple: true },
  cwd: { type: 'string', short: 'w' },
  user: { type: 'string', short: 'u' },
  timeout: { type: 'string' },
  'no-stdin': { type: 'boolean', short: 'n' },
  json: { type: 'boolean' },
} as const;

/** A command in a session that exists; wakes it when it rests. */
export async function exec(args: readonly string[]): Promise<number> {
  const given = parsed('exec', args, options);
  const name = onlyName(given, 'exec');
  const command = commandOf(given, 'vmux exec @last -- ls');
  const timeoutMs = given.duration('timeout');
  const isDetached = given.has('detach');
  const takesInput = !isDetached && !given.has('no-stdin') && hasInput();
  const sandbox = await findSession(await findServer(), name);
  const started = await sandbox.commands.start(command, {
    env: variablesFrom(given.texts('env')),
    cwd: given.text('cwd'),
    user: given.text('user'),
    ...{ timeoutMs, takesInput },
  });
  if (isDetached) {
    const ids = { session: sandbox.id, exec: started.id };
    await print(given.has('json') ? jsonText(ids) : started.id);
    return 0;
  }
  const streams = !given.has('json');
  const result = await follow(started, { onInterrupt: 'cancel', streams, input: takesInput });
  if (!result) return exitCodes.interrupted;
  if (given.has('json')) {
    const { id, ...rest } = result;
    await print(jsonText({ session: sandbox.id, exec: id, ...rest }));
  }
  return exitCodeOf(result);
}
