import type { LogItem, LogOptions, Sandbox, Stream } from '@vmux/sdk';

/** What is read: everything, what one command wrote, or one of its streams. */
export interface LogSource {
  readonly command?: string;
  readonly stream?: Stream;
}

const firstWindowBytes = 64 * 1024;
const lineEnd = 0x0a;

const sizeOf = (sandbox: Sandbox, { command, stream }: LogSource): Promise<number> =>
  command !== undefined && stream
    ? sandbox.commands.get(command).logSize(stream)
    : sandbox.logSize();

/** Where the last lines begin. Reads from the end, in windows that grow. */
export async function offsetOfLastLines(
  sandbox: Sandbox,
  source: LogSource,
  lines: number,
): Promise<number> {
  const size = await sizeOf(sandbox, source);
  if (lines === 0) return size;
  for (let window = firstWindowBytes; ; window *= 4) {
    const from = Math.max(0, size - window);
    const ends = await lineEndsFrom(sandbox, { ...source, offset: from }, size);
    // The end of the last line is not the beginning of another one.
    const wanted = ends.at(-1) === size ? ends.at(-lines - 1) : ends.at(-lines);
    if (wanted !== undefined) return wanted;
    if (from === 0) return 0;
  }
}

/** The offsets after each line end. */
async function lineEndsFrom(
  sandbox: Sandbox,
  options: LogOptions,
  size: number,
): Promise<readonly number[]> {
  const ends: number[] = [];
  for await (const item of sandbox.logs(options)) {
    if (item.kind !== 'bytes') continue;
    for (const [at, byte] of item.bytes.entries())
      if (byte === lineEnd && item.offset + at < size) ends.push(item.offset + at + 1);
  }
  return ends;
}

/** Where what was written at that time, or later, begins: found by halving. */
export async function offsetOfTime(
  sandbox: Sandbox,
  source: LogSource,
  sinceMs: number,
): Promise<number> {
  let low = 0;
  let high = await sizeOf(sandbox, source);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const item = await firstFrom(sandbox, { ...source, offset: middle });
    if (!item || Date.parse(item.at) >= sinceMs) high = middle;
    else low = item.offset + item.bytes.length;
  }
  return low;
}

async function firstFrom(
  sandbox: Sandbox,
  options: LogOptions,
): Promise<Extract<LogItem, { kind: 'bytes' }> | null> {
  for await (const item of sandbox.logs(options)) if (item.kind === 'bytes') return item;
  return null;
}
