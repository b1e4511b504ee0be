import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox, Vmux, VmuxError } from '@vmux/sdk';
import { Failure } from './failure';
import { savedLogin } from './login-file';
import { dataPathOf } from './stack/data-directory';
import { runningStack, type StackRecord } from './stack/stack-record';

/** The gateway that commands talk to. */
export interface Server {
  readonly vmux: Vmux;
  /** Whether it is the stack on this machine. */
  readonly isEmbedded: boolean;
}

const noServer = () =>
  new Failure(
    'no vmux server runs here',
    'start it with: vmux up (for one elsewhere: vmux login URL)',
  );

/** The one that the environment names, the one logged in to, else the embedded stack; `start` makes one when there is none. */
export async function findServer(start?: () => Promise<StackRecord>): Promise<Server> {
  const { VMUX_URL: url, VMUX_API_KEY: apiKey } = process.env;
  if (url && !apiKey) throw new Failure('VMUX_URL is set without a key', 'set VMUX_API_KEY too');
  const elsewhere = url && apiKey ? { url, apiKey } : savedLogin();
  if (elsewhere) {
    const vmux = new Vmux(elsewhere);
    if (await vmux.isUp()) return { vmux, isEmbedded: false };
    const fix = url ? 'check VMUX_URL, and that it runs' : 'check that it runs, or: vmux logout';
    throw new Failure(`no server answers at ${elsewhere.url}`, fix);
  }
  const directory = dataPathOf(process.env);
  let stack = runningStack(directory);
  if (!stack?.url && start) stack = await start();
  if (!stack?.url) throw noServer();
  return { vmux: new Vmux({ url: stack.url, apiKey: localKey(directory) }), isEmbedded: true };
}

function localKey(directory: string): string {
  const file = join(directory, 'api-key');
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (fault) {
    throw new Failure(
      `the API key cannot be read: ${(fault as Error).message}`,
      'run vmux as the user who started the stack',
    );
  }
}

const lastFile = (): string => join(dataPathOf(process.env), 'last-session');

/** What `@last` stands for from now on. Best effort: a directory that cannot be written has no last. */
export function rememberLast(id: string): void {
  try {
    writeFileSync(lastFile(), `${id}\n`, { mode: 0o600 });
  } catch (fault) {
    const { code } = fault as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EACCES' && code !== 'EROFS') throw fault;
  }
}

export class NoSuchSession extends Failure {
  constructor(name: string) {
    super(`there is no session "${name}"`, 'see: vmux ps -a');
  }
}

/** The session that is meant: by its id, the beginning of its id that no other has, or @last. */
export async function findSession({ vmux }: Server, text: string): Promise<Sandbox> {
  if (text === '@last') return Sandbox.connect(await lastId(vmux), { vmux });
  if (/-[0-9a-f]{4}$/.test(text)) {
    try {
      return await Sandbox.connect(text, { vmux });
    } catch (fault) {
      if (!(fault instanceof VmuxError && fault.code === 'session_not_found')) throw fault;
    }
  }
  const found: string[] = [];
  for await (const { id } of Sandbox.list({ vmux })) if (id.startsWith(text)) found.push(id);
  const [only] = found;
  if (only === undefined) throw new NoSuchSession(text);
  if (found.length > 1)
    throw new Failure(
      `"${text}" may be any of ${found.slice(0, 5).join(', ')}${found.length > 5 ? ', …' : ''}`,
      'give more of the id',
    );
  return Sandbox.connect(only, { vmux });
}

async function lastId(vmux: Vmux): Promise<string> {
  try {
    return readFileSync(lastFile(), 'utf8').trim();
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code !== 'ENOENT') throw fault;
  }
  for await (const { id } of Sandbox.list({ vmux })) return id;
  throw new Failure('there is no last session', 'make one with: vmux run -- echo hello');
}
