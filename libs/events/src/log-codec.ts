import { execId } from './ids';
import type { LogEvent } from './log';
import { MAX_CHUNK_BYTES } from './log';
import { dictionary, flag, integer, list, Malformed, type Shape, struct, text } from './shape';
import { sizes, stream, time } from './values';

const offset = integer(0);

const issued = integer(0);

const chunkMetadata = struct({ execId, stream, offset, sessionOffset: offset, at: time, issued });

const shapes = {
  LogMark: struct({
    // 0 in a log that no epoch has opened yet.
    epoch: integer(0, 2 ** 31),
    instance: text(128),
    closed: flag,
    sessionOffset: offset,
    streams: dictionary(execId, struct({ next: sizes, resizes: integer(0), issued }), 100_000),
    segments: list(struct({ revision: integer(0), sessionOffset: offset }), 64),
    firstOffset: offset,
    sessionRevision: integer(-1),
    at: time,
  }),
  LogGap: struct({
    execId,
    stream,
    from: offset,
    to: offset,
    sessionOffset: offset,
    reason: text(200),
    at: time,
    issued,
  }),
  LogTruncated: struct({
    revision: integer(0),
    firstOffset: offset,
    droppedBytes: offset,
    at: time,
  }),
  TerminalResized: struct({
    execId,
    number: integer(0),
    offset,
    sessionOffset: offset,
    cols: integer(1, 65_535),
    rows: integer(1, 65_535),
    at: time,
    issued,
  }),
} satisfies Record<Exclude<LogEvent['type'], 'LogChunk'>, Shape<object>>;

/** From the store; null for a type that this version does not know. */
export function decodeLogEvent(stored: {
  readonly type: string;
  readonly data: unknown;
  readonly metadata: unknown;
}): LogEvent | null {
  if (stored.type === 'LogChunk') {
    if (!(stored.data instanceof Uint8Array) || stored.data.length > MAX_CHUNK_BYTES)
      throw new Malformed('LogChunk data', `at most ${MAX_CHUNK_BYTES} bytes`);
    return {
      type: 'LogChunk',
      ...chunkMetadata(stored.metadata, 'LogChunk metadata'),
      bytes: stored.data,
    };
  }
  if (!isJsonLogEvent(stored.type)) return null;
  const data = shapes[stored.type](stored.data, `${stored.type} data`);
  return { type: stored.type, ...data } as LogEvent;
}

/** Into the store: a chunk's bytes as they are, everything else as plain data. */
export function encodeLogEvent(event: LogEvent): {
  type: LogEvent['type'];
  data: Uint8Array | Omit<LogEvent, 'type'>;
  metadata: Readonly<Record<string, string | number>>;
} {
  if (event.type === 'LogChunk') {
    const { type, bytes, ...metadata } = event;
    return { type, data: bytes, metadata };
  }
  const { type, ...data } = event;
  return { type, data, metadata: {} };
}

const isJsonLogEvent = (type: string): type is keyof typeof shapes => Object.hasOwn(shapes, type);
