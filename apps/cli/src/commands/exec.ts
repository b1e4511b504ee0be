import { type Command, Sandbox } from '@vmux/sdk';
import { commandOf, onlyName, type Parsed, parsed } from '../arguments';
import { exitCodes, Failure, UsageError } from '../failure';
import { inShell } from '../named-shell';
import { chosenProvider } from '../provider-choice';
import { findServer, findSession, NoSuchSession, rememberLast } from '../server';
import { jsonText } from '../terminal/escape';
import { hasInput } from '../terminal/input';
import { print, say } from '../terminal/output';
import { comeBack } from './attach';
import { attached, needTerminal, ownSize } from './attached';
import { exitCodeOf, follow, variablesFrom } from './follow';
import { bringUp } from './up';

const options = {
  detach: { type: 'boolean', short: 'd' },
  tty: { type: 'boolean', short: 't' },
  create: { type: 'boolean' },
  shell: { type: 'string' },
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
  const asked = commandOf(given, 'vmux exec @last -- ls');
  const shell = given.text('shell');
  const command = shell === undefined ? asked : inShell(shell, asked);
  const timeoutMs = given.duration('timeout');
  const isDetached = given.has('detach');
  const isTerminal = given.has('tty');
  const isJson = given.has('json');
  if (isTerminal && (isDetached || isJson))
    throw new UsageError(`-t and ${isDetached ? '-d' : '--json'} exclude each other`);
  if (isTerminal) needTerminal('-t');
  const takesInput = !isDetached && !isTerminal && !given.has('no-stdin') && hasInput();
  const sandbox = await sessionFor(given, name);
  const started = await sandbox.commands.start(command, {
    env: variablesFrom(given.texts('env')),
    cwd: given.text('cwd'),
    user: given.text('user'),
    ...{ timeoutMs, takesInput },
    ...(isTerminal ? { pty: ownSize() } : {}),
  });
  if (isDetached) {
    const ids = { session: sandbox.id, exec: started.id };
    await print(isJson ? jsonText(ids) : started.id);
    return 0;
  }
  if (isTerminal) return onTerminal(started, sandbox.id);
  const result = await follow(started, {
    ...{ onInterrupt: 'forward', streams: !isJson, input: takesInput },
  });
  if (!result) return exitCodes.interrupted;
  if (isJson) {
    const { id, ...rest } = result;
    await print(jsonText({ session: sandbox.id, exec: id, ...rest }));
  }
  return exitCodeOf(result);
}

/** The one that is named; with --create a new one of that name where there is none. */
async function sessionFor(given: Parsed, name: string): Promise<Sandbox> {
  if (!given.has('create')) return findSession(await findServer(), name);
  const server = await findServer(bringUp);
  try {
    const found = await findSession(server, name);
    if ((await found.info()).endedAt === null) return found;
    throw new Failure(`${found.id} has ended`, 'give the new session another name');
  } catch (fault) {
    if (!(fault instanceof NoSuchSession)) throw fault;
  }
  const { vmux, isEmbedded } = server;
  const provider = isEmbedded ? await chosenProvider(vmux) : undefined;
  const made = await Sandbox.create({ vmux, name, provider });
  rememberLast(made.id);
  await say(`session ${made.id}`);
  return made;
}

/** The command's terminal here, until it ends or we leave. */
export async function onTerminal(command: Command, sessionId: string): Promise<number> {
  const exit = await attached(command, { fromStart: true });
  if (exit) return exitCodeOf(await command.ended());
  await say(`detached; it goes on. Come back: ${comeBack(sessionId, command.id)}`);
  return 0;
}
