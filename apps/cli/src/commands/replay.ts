import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command, LogItem, Sandbox } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { Failure } from '../failure';
import { findServer, findSession } from '../server';
import { print, say, write } from '../terminal/output';
import { TextFilter } from '../terminal/text-filter';

const options = {
  exec: { type: 'string' },
  speed: { type: 'string' },
  'max-pause': { type: 'string' },
  cast: { type: 'string' },
  raw: { type: 'boolean' },
} as const;

/** Output at the pace at which it was written, or as an asciicast file. */
export async function replay(args: readonly string[]): Promise<number> {
  const given = parsed('replay', args, options);
  const name = onlyName(given, 'replay');
  const speed = given.amount('speed') ?? 1;
  const maxPauseMs = given.duration('max-pause') ?? Number.POSITIVE_INFINITY;
  const file = given.text('cast');
  const sandbox = await findSession(await findServer(), name);
  const id = given.text('exec') ?? (await newestTerminal(sandbox));
  const command = id === null ? null : sandbox.commands.get(id);
  const items = command ? command.logs({ resizes: true }) : sandbox.logs({ resizes: true });
  if (file !== undefined) return writeCast(items, file, await sizeOf(command));
  const filter = process.stdout.isTTY && !given.has('raw') ? new TextFilter() : null;
  for await (const { item, afterMs } of paced(items)) {
    if (afterMs > 0) await sleep(Math.min(afterMs / speed, maxPauseMs));
    if (item.kind === 'bytes')
      await write(process.stdout, filter ? filter.pass(item.bytes) : item.bytes);
    if (item.kind === 'gap') await say(`bytes ${item.from} to ${item.to} no longer exist`);
  }
  return 0;
}

/** Null when the session has had no terminal: then everything it wrote is replayed. */
async function newestTerminal(sandbox: Sandbox): Promise<string | null> {
  const all = await sandbox.commands.list();
  if (all.length === 0)
    throw new Failure(
      `${sandbox.id} has run nothing yet`,
      `run something: vmux exec ${sandbox.id} -- …`,
    );
  return all.find(({ pty }) => pty)?.id ?? null;
}

async function* paced(
  items: AsyncIterable<LogItem>,
): AsyncGenerator<{ readonly item: LogItem; readonly afterMs: number }> {
  let last: number | null = null;
  for await (const item of items) {
    const at = item.kind === 'bytes' ? Date.parse(item.at) : Number.NaN;
    const afterMs = last === null || Number.isNaN(at) ? 0 : Math.max(0, at - last);
    if (!Number.isNaN(at)) last = Math.max(last ?? at, at);
    yield { item, afterMs };
  }
}

interface Size {
  readonly cols: number;
  readonly rows: number;
}

async function sizeOf(command: Command | null): Promise<Size> {
  const info = await command?.info();
  const spec = info?.spec as { pty?: Partial<Size> | null } | undefined;
  return { cols: spec?.pty?.cols ?? 80, rows: spec?.pty?.rows ?? 24 };
}

/** asciicast, version 2: a header, then one line for each piece; a character is never divided. */
async function writeCast(items: AsyncIterable<LogItem>, file: string, size: Size): Promise<number> {
  if (file === '-') {
    await castLines(items, size, (line) => print(line));
    return 0;
  }
  const target = await open(file, 'w', 0o600);
  try {
    await castLines(items, size, (line) => target.appendFile(`${line}\n`));
  } finally {
    await target.close();
  }
  await print(file);
  return 0;
}

async function castLines(
  items: AsyncIterable<LogItem>,
  { cols, rows }: Size,
  write: (line: string) => Promise<void>,
): Promise<void> {
  const line = (value: unknown) => write(JSON.stringify(value));
  const decoder = new TextDecoder();
  let seconds = 0;
  let isBegun = false;
  const begin = async (timestamp: number) => {
    if (!isBegun) await line({ version: 2, width: cols, height: rows, timestamp });
    isBegun = true;
  };
  let last = '';
  for await (const { item, afterMs } of paced(items)) {
    seconds += afterMs / 1000;
    const at = Math.round(seconds * 1e6) / 1e6;
    if (item.kind === 'bytes') {
      await begin(Math.floor(Date.parse(item.at) / 1000));
      const text = decoder.decode(item.bytes, { stream: true });
      // Without a terminal nobody has made lines begin on the left.
      const shown = item.stream === 'pty' ? text : returned(text, last);
      last = text.at(-1) ?? last;
      if (text !== '') await line([at, 'o', shown]);
    } else if (item.kind === 'resize' && isBegun)
      await line([at, 'r', `${item.cols}x${item.rows}`]);
  }
  await begin(Math.floor(Date.now() / 1000));
  const rest = decoder.decode();
  if (rest !== '') await line([seconds, 'o', rest]);
}

function returned(text: string, before: string): string {
  const lines = text.replace(/(?<!\r)\n/g, '\r\n');
  return before === '\r' && text.startsWith('\n') ? lines.slice(1) : lines;
}
