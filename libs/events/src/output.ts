import { execId, instanceId, sessionId } from './ids';
import { MAX_CHUNK_BYTES } from './log';
import { integer, list, Malformed, type Shaped, struct, tagged, text } from './shape';
import { epochNumber, stream, time } from './values';

/**
 * Output on its way from a runner: one frame of
 *
 *     'V'  version (1)  header length (uint32, big-endian)  header (JSON)  raw bytes
 *
 * The header lists what happened in order; the bytes of its chunks follow one another without gaps.
 */
export const MAX_OUTPUT_BYTES = 512 * 1024;
export const MAX_OUTPUT_ITEMS = 1024;
const MAX_HEADER_BYTES = 384 * 1024;
const MAGIC = 0x56;
const VERSION = 1;
const PREFIX_BYTES = 6;

const offset = integer(0);

const item = tagged('kind', {
  chunk: struct({ execId, stream, offset, length: integer(1, MAX_CHUNK_BYTES), at: time }),
  /** The supervisor says that these bytes no longer exist. */
  gap: struct({ execId, stream, from: offset, to: offset, reason: text(200, 1), at: time }),
  resize: struct({
    execId,
    number: integer(0),
    offset,
    cols: integer(1, 65_535),
    rows: integer(1, 65_535),
    at: time,
  }),
});
type Item = Shaped<typeof item>;

const header = struct({
  sessionId,
  epoch: epochNumber,
  instance: instanceId,
  items: list(item, MAX_OUTPUT_ITEMS),
});

type ItemNamed<K extends Item['kind']> = Extract<Item, { readonly kind: K }>;
export type OutputChunk = Omit<ItemNamed<'chunk'>, 'length'> & { readonly bytes: Uint8Array };
export type OutputGap = ItemNamed<'gap'>;
export type OutputResize = ItemNamed<'resize'>;
export type OutputItem = OutputChunk | OutputGap | OutputResize;

export interface OutputMessage {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
  readonly items: readonly OutputItem[];
}

/** With the sender's name, from the subject that it came on. */
export interface OutputReport extends OutputMessage {
  readonly runnerId: string;
}

export function encodeOutput(message: OutputMessage): Uint8Array {
  const bodies: Uint8Array[] = [];
  const items = message.items.map((each): Item => {
    if (each.kind !== 'chunk') return each;
    const { bytes, ...rest } = each;
    bodies.push(bytes);
    return { ...rest, length: bytes.length };
  });
  const { sessionId, epoch, instance } = message;
  const head = Buffer.from(
    JSON.stringify(header({ sessionId, epoch, instance, items }, 'output')),
    'utf8',
  );
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt8(MAGIC, 0);
  prefix.writeUInt8(VERSION, 1);
  prefix.writeUInt32BE(head.length, 2);
  if (head.length > MAX_HEADER_BYTES)
    throw new Malformed('output header', `at most ${MAX_HEADER_BYTES} bytes`);
  if (totalOf(bodies) > MAX_OUTPUT_BYTES)
    throw new Malformed('output', `at most ${MAX_OUTPUT_BYTES} bytes`);
  return Buffer.concat([prefix, head, ...bodies]);
}

/** The chunks of the result are views into the frame. Throws `Malformed`. */
export function decodeOutput(frame: Uint8Array, runnerId: string): OutputReport {
  const buffer = Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength);
  if (buffer.length < PREFIX_BYTES || buffer[0] !== MAGIC || buffer[1] !== VERSION)
    throw new Malformed('output', 'a frame of version 1');
  const bodyStart = PREFIX_BYTES + buffer.readUInt32BE(2);
  if (bodyStart > buffer.length || bodyStart - PREFIX_BYTES > MAX_HEADER_BYTES)
    throw new Malformed('output header', `at most ${MAX_HEADER_BYTES} bytes and within the frame`);
  if (buffer.length - bodyStart > MAX_OUTPUT_BYTES)
    throw new Malformed('output', `at most ${MAX_OUTPUT_BYTES} bytes`);
  const head = header(jsonOf(buffer.subarray(PREFIX_BYTES, bodyStart)), 'output');
  let position = bodyStart;
  const items = head.items.map((each): OutputItem => {
    if (each.kind !== 'chunk') return each;
    const { length, ...rest } = each;
    position += length;
    return { ...rest, bytes: buffer.subarray(position - length, position) };
  });
  if (position !== buffer.length)
    throw new Malformed('output', 'exactly as long as its header says');
  return { ...head, items, runnerId };
}

const totalOf = (bodies: readonly Uint8Array[]): number =>
  bodies.reduce((sum, body) => sum + body.length, 0);

function jsonOf(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    throw new Malformed('output header', 'JSON');
  }
}
