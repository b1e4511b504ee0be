import type { LogItem, Sandbox, Stream } from '@vmux/sdk';
import { onlyName, type Parsed, parsed } from '../arguments';
import { UsageError } from '../failure';
import { type LogSource, offsetOfLastLines, offsetOfTime } from '../log-place';
import { milliseconds } from '../project/settings';
import { findServer, findSession } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print, say, write } from '../terminal/output';
import { TextFilter } from '../terminal/text-filter';

const options = {
  follow: { type: 'boolean', short: 'f' },
  offset: { type: 'string' },
  tail: { type: 'string', short: 'n' },
  since: { type: 'string' },
  exec: { type: 'string' },
  stream: { type: 'string' },
  json: { type: 'boolean' },
  raw: { type: 'boolean' },
} as const;

/** Output, from any byte on. */
export async function logs(args: readonly string[]): Promise<number> {
  const given = parsed('logs', args, options);
  const name = onlyName(given, 'logs');
  const source: LogSource = { command: given.text('exec'), stream: streamFrom(given) };
  const start = startFrom(given);
  const sandbox = await findSession(await findServer(), name);
  const offset = await start(sandbox, source);
  const show = given.has('json') ? showJson : showBytes(given.has('raw'));
  for await (const item of sandbox.logs({ ...source, offset, follow: given.has('follow') }))
    await show(item);
  return 0;
}

function streamFrom(given: Parsed): Stream | undefined {
  const text = given.text('stream');
  if (text === undefined) return undefined;
  if (text !== 'stdout' && text !== 'stderr' && text !== 'pty')
    throw new UsageError(`--stream takes stdout, stderr or pty, not "${text}"`);
  if (given.text('exec') === undefined)
    throw new UsageError('--stream needs --exec: whose stream is meant?');
  return text;
}

type Start = (sandbox: Sandbox, source: LogSource) => Promise<number> | number;

function startFrom(given: Parsed): Start {
  const offset = given.number('offset');
  const lines = given.number('tail');
  const since = given.text('since');
  if ([offset, lines, since].filter((each) => each !== undefined).length > 1)
    throw new UsageError('--offset, --tail and --since exclude each other');
  if (lines !== undefined) return (sandbox, source) => offsetOfLastLines(sandbox, source, lines);
  if (since !== undefined) {
    const at = timeFrom(since);
    return (sandbox, source) => offsetOfTime(sandbox, source, at);
  }
  return () => offset ?? 0;
}

/** So long ago, or a time such as 2026-05-01T12:00:00Z. */
function timeFrom(text: string): number {
  const ago = milliseconds(text);
  const at = ago === null ? Date.parse(text) : Date.now() - ago;
  if (Number.isNaN(at))
    throw new UsageError(`--since takes a time such as 5m or 2026-05-01T12:00:00Z, not "${text}"`);
  return at;
}

/** Pipes and files get every byte; a terminal gets text and colours. */
function showBytes(isRaw: boolean): (item: LogItem) => Promise<void> {
  const filter = process.stdout.isTTY && !isRaw ? new TextFilter() : null;
  return async (item) => {
    if (item.kind === 'gap') await sayGap(item);
    if (item.kind === 'bytes')
      await write(process.stdout, filter ? filter.pass(item.bytes) : item.bytes);
  };
}

const sayGap = ({ from, to, reason }: Extract<LogItem, { kind: 'gap' }>): Promise<void> =>
  say(`bytes ${from} to ${to} no longer exist (${visible(reason)})`);

function showJson({ command: exec, ...item }: LogItem): Promise<void> {
  if (item.kind !== 'bytes') return print(jsonText({ ...item, exec }));
  const { kind, bytes, ...place } = item;
  return print(jsonText({ kind, exec, ...place, b64: bytes.toString('base64') }));
}
