import { MalformedMessage, Reader } from './wire';

/** An event as a client proposes it. The byte fields are views of the received message. */
export interface ProposedEvent {
  /** Canonical lower-case form. */
  readonly id: string;
  readonly type: string;
  readonly contentType: string;
  readonly data: Buffer;
  readonly customMetadata: Buffer;
}

/** A revision, or one of the three kinds that name none. */
export type ExpectedRevision = number | 'any' | 'no_stream' | 'stream_exists';

const MAX_STREAM_NAME_BYTES = 1024;
const MAX_TYPE_BYTES = 1024;
const EMPTY = Buffer.alloc(0);
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** `AppendReq.ProposedMessage` and `BatchAppendReq.ProposedMessage`: the two have the same fields. */
export function decodeProposedEvent(message: Buffer): ProposedEvent {
  const reader = new Reader(message);
  let id: string | undefined;
  let type: string | undefined;
  let contentType = 'application/octet-stream';
  let data: Buffer = EMPTY;
  let customMetadata: Buffer = EMPTY;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) id = decodeUuid(reader.bytes());
    else if (field === 2) {
      const [key, value] = decodeMapEntry(reader.bytes());
      if (key === 'type') type = value;
      else if (key === 'content-type') contentType = value;
    } else if (field === 3) customMetadata = reader.bytes();
    else if (field === 4) data = reader.bytes();
    else reader.skip();
  }
  if (id === undefined) throw new MalformedMessage('an event has no id');
  if (!type) throw new MalformedMessage('an event has no type');
  if (type.length > MAX_TYPE_BYTES || contentType.length > MAX_TYPE_BYTES) {
    throw new MalformedMessage(`an event type is longer than ${MAX_TYPE_BYTES}`);
  }
  return { id, type, contentType, data, customMetadata };
}

export function decodeUuid(message: Buffer): string {
  const reader = new Reader(message);
  let id = '';
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 2) id = reader.bytes().toString('latin1').toLowerCase();
    else if (field === 1) id = decodeStructuredUuid(reader.bytes());
    else reader.skip();
  }
  if (!UUID.test(id)) throw new MalformedMessage('an id is not a UUID');
  return id;
}

/** Two 64-bit varints, most significant half first; beyond a number's precision, so read by hand. */
function decodeStructuredUuid(message: Buffer): string {
  const halves = [0n, 0n, 0n];
  let at = 0;
  while (at < message.length) {
    const field = (message[at++] ?? 0) >> 3;
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = message[at++];
      if (byte === undefined) throw new MalformedMessage('cut short');
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    if (field === 1 || field === 2) halves[field] = BigInt.asUintN(64, value);
  }
  const hex = (half: number) => (halves[half] ?? 0n).toString(16).padStart(16, '0');
  return (hex(1) + hex(2)).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

function decodeMapEntry(message: Buffer): [key: string, value: string] {
  const reader = new Reader(message);
  let key = '';
  let value = '';
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) key = reader.text();
    else if (field === 2) value = reader.text();
    else reader.skip();
  }
  return [key, value];
}

/** `StreamIdentifier`. Names are UTF-8 and kept as text. */
export function decodeStreamName(message: Buffer): string {
  const reader = new Reader(message);
  let name = '';
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 3) name = checkedStreamName(reader.bytes());
    else reader.skip();
  }
  return name;
}

export function checkedStreamName(bytes: Uint8Array): string {
  if (bytes.length > MAX_STREAM_NAME_BYTES) {
    throw new MalformedMessage(`a stream name is longer than ${MAX_STREAM_NAME_BYTES} bytes`);
  }
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const name = view.toString('utf8');
  if (name.includes('\0') || !Buffer.from(name, 'utf8').equals(view)) {
    throw new MalformedMessage('a stream name is not UTF-8 text');
  }
  return name;
}
