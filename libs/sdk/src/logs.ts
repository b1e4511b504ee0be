import { VmuxError } from './errors';
import { resumingEvents } from './resuming';
import type { SseMessage } from './sse';
import type { Stream } from './types';
import type { CallOptions, Vmux } from './vmux';

export interface LogOptions extends CallOptions {
  /** Where to start: in one stream of a command when both are named, else in the merged output. 0 without it. */
  readonly offset?: number;
  /** Go on with what comes until the session, or the command, has ended. */
  readonly follow?: boolean;
  /** Only what this command wrote. */
  readonly command?: string;
  /** Only this stream of the command. */
  readonly stream?: Stream;
  /** The sizes that its terminal was given, too. */
  readonly resizes?: boolean;
}

/** Bytes as they were written, the place where bytes no longer exist, or a terminal's new size. */
export type LogItem =
  | {
      readonly kind: 'bytes';
      readonly command: string;
      readonly stream: Stream;
      /** Of the first byte. A reader that starts again at `offset + bytes.length` misses nothing. */
      readonly offset: number;
      readonly at: string;
      readonly bytes: Buffer;
    }
  | {
      readonly kind: 'gap';
      readonly command: string | null;
      readonly stream: Stream | null;
      readonly from: number;
      readonly to: number;
      readonly reason: string;
    }
  | {
      readonly kind: 'resize';
      readonly command: string;
      readonly offset: number;
      readonly cols: number;
      readonly rows: number;
    };

/**
 * Output from an offset on, in order. A cut connection or a gateway that is started again is not
 * noticed: reading goes on at the next byte, and none is lost or repeated.
 */
export async function* logItems(
  vmux: Vmux,
  sessionId: string,
  { offset = 0, follow = false, command, stream, resizes = false, signal }: LogOptions = {},
): AsyncGenerator<LogItem> {
  const query = { offset, follow, exec: command, stream };
  const path = `/v1/sessions/${encodeURIComponent(sessionId)}/logs`;
  let next = offset;
  for await (const message of resumingEvents(vmux, path, { query, signal })) {
    const item = itemOf(message);
    if (item?.kind === 'gap') {
      if (item.to <= next) continue;
      next = item.to;
      yield item;
    } else if (item?.kind === 'resize') {
      if (resizes) yield item;
    } else if (item) {
      const known = Math.max(0, next - item.offset);
      if (known >= item.bytes.length) continue;
      next = item.offset + item.bytes.length;
      yield known === 0
        ? item
        : { ...item, offset: item.offset + known, bytes: item.bytes.subarray(known) };
    }
  }
}

/**
 * How much there is so far: of one stream of a command when both are named, else of the merged output.
 * Asked for without reading it.
 */
export async function logSize(
  vmux: Vmux,
  sessionId: string,
  { command, stream, signal }: Pick<LogOptions, 'command' | 'stream' | 'signal'> = {},
): Promise<number> {
  const path = `/v1/sessions/${encodeURIComponent(sessionId)}/logs`;
  const query = { offset: Number.MAX_SAFE_INTEGER, exec: command, stream };
  try {
    await vmux.call('GET', path, { query, signal });
  } catch (fault) {
    const size = fault instanceof VmuxError ? fault.details.size : undefined;
    if (typeof size === 'number') return size;
    throw fault;
  }
  return Number.MAX_SAFE_INTEGER;
}

/** Null for what this client does not know. */
function itemOf({ event, data }: SseMessage): LogItem | null {
  if (event !== 'message' && event !== 'gap' && event !== 'resize') return null;
  const fields = data as Record<string, unknown>;
  const { exec, stream, offset, at, b64, from, to, reason, cols, rows } = fields;
  if (event === 'resize')
    return {
      ...{ kind: 'resize', command: String(exec), offset: Number(offset) },
      ...{ cols: Number(cols), rows: Number(rows) },
    };
  if (event === 'gap' && typeof from === 'number' && typeof to === 'number')
    return {
      kind: 'gap',
      command: typeof exec === 'string' ? exec : null,
      stream: isStream(stream) ? stream : null,
      ...{ from, to, reason: String(reason) },
    };
  if (
    typeof exec !== 'string' ||
    !isStream(stream) ||
    typeof offset !== 'number' ||
    typeof b64 !== 'string'
  )
    throw new VmuxError(
      'unexpected_answer',
      'the log has an item that this client does not know',
      'use a client of the same version as the gateway',
    );
  const bytes = Buffer.from(b64, 'base64');
  return { kind: 'bytes', command: exec, stream, offset, at: String(at), bytes };
}

const isStream = (value: unknown): value is Stream =>
  value === 'stdout' || value === 'stderr' || value === 'pty';
