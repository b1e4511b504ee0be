import type { LogItem, Stream } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print, say, write } from '../terminal/output';
import { TextFilter } from '../terminal/text-filter';

const options = {
  follow: { type: 'boolean', short: 'f' },
  offset: { type: 'string' },
  exec: { type: 'string' },
  stream: { type: 'string' },
  json: { type: 'boolean' },
  raw: { type: 'boolean' },
} as const;

/** Output, from any byte on. */
export async function logs(args: readonly string[]): Promise<number> {
  const given = parsed('logs', args, options);
  const name = onlyName(given, 'logs');
  const stream = streamFrom(given.text('stream'));
  const command = given.text('exec');
  if (stream && command === undefined)
    throw new UsageError('--stream needs --exec: whose stream is meant?');
  const offset = given.number('offset');
  const sandbox = await findSession(await findServer(), name);
  const items = sandbox.logs({ offset, follow: given.has('follow'), command, stream });
  const show = given.has('json') ? showJson : showBytes(given.has('raw'));
  for await (const item of items) await show(item);
  return 0;
}

function streamFrom(text: string | undefined): Stream | undefined {
  if (text === undefined || text === 'stdout' || text === 'stderr' || text === 'pty') return text;
  throw new UsageError(`--stream takes stdout, stderr or pty, not "${text}"`);
}

/** Pipes and files get every byte; a terminal gets text and colours. */
function showBytes(isRaw: boolean): (item: LogItem) => Promise<void> {
  const filter = process.stdout.isTTY && !isRaw ? new TextFilter() : null;
  return async (item) => {
    if (item.kind === 'gap') await sayGap(item);
    else await write(process.stdout, filter ? filter.pass(item.bytes) : item.bytes);
  };
}

const sayGap = ({ from, to, reason }: Extract<LogItem, { kind: 'gap' }>): Promise<void> =>
  say(`bytes ${from} to ${to} no longer exist (${reason})`);

function showJson(item: LogItem): Promise<void> {
  const { kind, command: exec, ...rest } = item;
  if (kind === 'gap') return print(jsonText({ kind, exec, ...rest }));
  const { bytes, ...place } = rest as Omit<Extract<LogItem, { kind: 'bytes' }>, 'kind' | 'command'>;
  return print(jsonText({ kind, exec, ...place, b64: bytes.toString('base64') }));
}
