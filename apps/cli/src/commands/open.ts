import { spawn } from 'node:child_process';
import { parsed } from '../arguments';
import { Failure, UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';
import { portFrom } from './ports';

const options = {
  print: { type: 'boolean' },
  ttl: { type: 'string' },
  json: { type: 'boolean' },
} as const;

/** The preview of a port, in the browser where there is one; the URL carries a token. */
export async function open(args: readonly string[]): Promise<number> {
  const given = parsed('open', args, options);
  const [name, text, extra] = given.positionals;
  if (name === undefined || extra !== undefined)
    throw new UsageError('vmux open takes a session and a port', 'as in: vmux open @last 8000');
  const asked = text === undefined ? null : portFrom(text);
  const ttlMs = given.duration('ttl');
  const sandbox = await findSession(await findServer(), name);
  const port = asked ?? (await onlyPort(sandbox));
  const { tokenUrl, ...token } = await sandbox.ports.token(port, { ttlMs });
  if (given.has('json')) {
    await print(jsonText({ session: sandbox.id, ...token, tokenUrl }));
    return 0;
  }
  if (tokenUrl === null)
    throw new Failure(
      'this server has no previews',
      `reach the port with: vmux forward ${sandbox.id} ${port}`,
    );
  await print(tokenUrl);
  if (!given.has('print') && process.stdout.isTTY) browse(tokenUrl);
  return 0;
}

async function onlyPort(sandbox: Awaited<ReturnType<typeof findSession>>): Promise<number> {
  const found = (await sandbox.ports.list()).filter(({ reserved }) => !reserved);
  const [first, second] = found.some(({ open: listens }) => listens)
    ? found.filter(({ open: listens }) => listens)
    : found;
  if (first && !second) return first.port;
  if (!first)
    throw new Failure(
      `nothing listens in ${sandbox.id}`,
      `name the port that will: vmux open ${sandbox.id} 8000`,
    );
  const all = found.map((each) => each.port).join(', ');
  throw new Failure(`${sandbox.id} has several ports: ${all}`, 'name one of them');
}

/** Best effort: the URL has been printed. */
function browse(url: string): void {
  const isMac = process.platform === 'darwin';
  const hasDisplay = Boolean(process.env.DISPLAY || process.env.WAYLAND_DISPLAY);
  if (!isMac && !hasDisplay) return;
  const program = isMac ? 'open' : 'xdg-open';
  spawn(program, [url], { stdio: 'ignore', detached: true })
    .once('error', () => undefined)
    .unref();
}
