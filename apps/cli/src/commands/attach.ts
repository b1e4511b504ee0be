import { onlyName, parsed } from '../arguments';
import { findServer, findSession } from '../server';
import { say, whisper } from '../terminal/output';
import { attached, needTerminal, ownSize } from './attached';
import { exitCodeOf } from './follow';

const options = {
  exec: { type: 'string' },
  watch: { type: 'boolean' },
} as const;

/** The session's shell, or another terminal of it, here. */
export async function attach(args: readonly string[]): Promise<number> {
  const given = parsed('attach', args, options);
  const name = onlyName(given, 'attach');
  const watch = given.has('watch');
  if (!watch) needTerminal('vmux attach');
  const sandbox = await findSession(await findServer(), name);
  const id = given.text('exec');
  const command =
    id === undefined ? await sandbox.commands.shell(ownSize()) : sandbox.commands.get(id);
  await whisper(`attached to ${sandbox.id}; leave with Ctrl-P Ctrl-Q`);
  const exit = await attached(command, { watch });
  if (exit) return exitCodeOf({ exit, timedOut: false });
  await say(`detached; it goes on. Come back: ${comeBack(sandbox.id, id)}`);
  return 0;
}

export const comeBack = (session: string, exec?: string): string =>
  `vmux attach ${session}${exec === undefined ? '' : ` --exec ${exec}`}`;
