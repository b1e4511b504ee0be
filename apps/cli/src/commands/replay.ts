import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
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
async function writeCast(
  items: AsyncIterable<LogItem>,
  file: string,
  { cols, rows }: Size,
): Promise<number> {
  const out = file === '-' ? process.stdout : createWriteStream(file, { mode: 0o600 });
  const line = async (value: unknown) => {
    if (!out.write(`${JSON.stringify(value)}\n`)) await once(out, 'drain');
  };
  const decoder = new TextDecoder();
  let seconds = 0;
  let isBegun = false;
  const begin = async (timestamp: number) => {
    if (!isBegun) await line({ version: 2, width: cols, height: rows, timestamp });
    isBegun = true;
  };
  for await (const { item, afterMs } of paced(items)) {
    seconds += afterMs / 1000;
    const at = Math.round(seconds * 1e6) / 1e6;
    if (item.kind === 'bytes') {
      await begin(Math.floor(Date.parse(item.at) / 1000));
      const text = decoder.decode(item.bytes, { stream: true });
      if (text !== '') await line([at, 'o', text]);
    } else if (item.kind === 'resize' && isBegun)
      await line([at, 'r', `${item.cols}x${item.rows}`]);
  }
  await begin(Math.floor(Date.now() / 1000));
  const rest = decoder.decode();
  if (rest !== '') await line([seconds, 'o', rest]);
  if (out !== process.stdout) {
    out.end();
    await once(out, 'finish');
    await print(file);
  }
  return 0;
}
