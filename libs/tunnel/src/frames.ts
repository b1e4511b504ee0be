import { MalformedFrame, REFUSED_CODES, type RefusedFacts, TunnelRefused } from './errors';

/**
 * One WebSocket message is one frame: `u8 type · u32 stream · body`, little-endian. Streams are numbered
 * by the client from 1 on, one after the other, and no number is used twice on a connection.
 */
export const TYPE = {
  /** Client: a new stream; the body is the request as JSON. */
  open: 1,
  /** Both: bytes, at least one. */
  data: 2,
  /** Both: no more data in this direction. */
  end: 3,
  /** Both: a u32, so many bytes more may be sent. */
  credit: 4,
  /** Server: the stream is over; the body is the result as JSON. */
  done: 5,
  /** Server: the stream is over; the body is `{code, message, facts}`. */
  error: 6,
  /** Client: the stream is over; whatever the server is doing for it ends. */
  cancel: 7,
} as const;

export const HEADER_BYTES = 5;
export const MAX_DATA_BYTES = 64 * 1024;
export const MAX_MESSAGE_BYTES = MAX_DATA_BYTES + HEADER_BYTES;
/** Of a request, a result or an error. */
export const MAX_JSON_BYTES = 32 * 1024;
/** What may be under way in one direction of one stream before the reader has taken it. */
export const WINDOW_BYTES = 256 * 1024;
/** Streams that are open at once on one connection. */
export const MAX_STREAMS = 1024;

export interface Frame {
  readonly type: number;
  readonly stream: number;
  readonly body: Buffer;
}

export function encode(type: number, stream: number, body: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  frame.writeUInt8(type, 0);
  frame.writeUInt32LE(stream, 1);
  frame.set(body, HEADER_BYTES);
  return frame;
}

export function decode(message: Buffer): Frame {
  if (message.length < HEADER_BYTES) throw new MalformedFrame(`${message.length} bytes`);
  return {
    type: message.readUInt8(0),
    stream: message.readUInt32LE(1),
    body: message.subarray(HEADER_BYTES),
  };
}

export function encodeJson(type: number, stream: number, value: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(value ?? null));
  if (body.length > MAX_JSON_BYTES) throw new RangeError(`a body of ${body.length} bytes`);
  return encode(type, stream, body);
}

export function jsonOf({ body }: Frame): unknown {
  if (body.length > MAX_JSON_BYTES) throw new MalformedFrame(`a body of ${body.length} bytes`);
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw new MalformedFrame('not JSON');
  }
}

export function encodeCredit(stream: number, bytes: number): Buffer {
  const body = Buffer.alloc(4);
  body.writeUInt32LE(bytes);
  return encode(TYPE.credit, stream, body);
}

export function creditOf({ body }: Frame): number {
  if (body.length !== 4) throw new MalformedFrame(`a credit of ${body.length} bytes`);
  return body.readUInt32LE(0);
}

export function dataOf({ body }: Frame): Buffer {
  if (body.length === 0 || body.length > MAX_DATA_BYTES)
    throw new MalformedFrame(`data of ${body.length} bytes`);
  return body;
}

const MAX_MESSAGE_CHARS = 1000;

export const encodeRefused = (stream: number, { code, message, facts }: TunnelRefused): Buffer =>
  encodeJson(TYPE.error, stream, { code, message: message.slice(0, MAX_MESSAGE_CHARS), facts });

export function refusedOf(frame: Frame): TunnelRefused {
  const said = jsonOf(frame);
  if (typeof said !== 'object' || said === null) throw new MalformedFrame('not an error');
  const { code, message, facts } = said as Readonly<Record<string, unknown>>;
  const known = REFUSED_CODES.find((each) => each === code);
  if (!known || typeof message !== 'string') throw new MalformedFrame('not an error');
  return new TunnelRefused(known, message.slice(0, MAX_MESSAGE_CHARS), factsOf(facts));
}

function factsOf(value: unknown): RefusedFacts {
  if (typeof value !== 'object' || value === null) return {};
  const entries = Object.entries(value).slice(0, 16);
  return Object.fromEntries(
    entries.filter(
      ([, fact]) => typeof fact === 'number' || (typeof fact === 'string' && fact.length <= 200),
    ),
  );
}
