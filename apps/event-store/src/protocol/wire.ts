/**
 * The part of protobuf's wire format that the hot messages need. Writing goes into one growing buffer;
 * reading never copies: byte fields are views of the message.
 */

const WIRE_VARINT = 0;
const WIRE_FIXED64 = 1;
const WIRE_BYTES = 2;
const WIRE_FIXED32 = 5;

export class MalformedMessage extends Error {
  readonly code = 'malformed_message';
  constructor(detail: string) {
    super(`the message is malformed: ${detail}`);
    this.name = 'MalformedMessage';
  }
}

export const varintSize = (value: number): number => {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
};

/** Size of a length-delimited field whose tag takes one byte (field numbers up to 15). */
export const bytesFieldSize = (length: number): number => 1 + varintSize(length) + length;

/** Writes into a buffer whose exact size the caller has computed. */
export class Writer {
  private at = 0;
  constructor(readonly buffer: Buffer) {}

  varint(value: number): this {
    let rest = value;
    while (rest >= 128) {
      this.buffer[this.at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.buffer[this.at++] = rest;
    return this;
  }

  varintField(field: number, value: number): this {
    this.buffer[this.at++] = (field << 3) | WIRE_VARINT;
    return this.varint(value);
  }

  /** Announces a length-delimited field; its `length` bytes are to be written next. */
  open(field: number, length: number): this {
    this.buffer[this.at++] = (field << 3) | WIRE_BYTES;
    return this.varint(length);
  }

  bytesField(field: number, bytes: Uint8Array): this {
    return this.open(field, bytes.length).raw(bytes);
  }

  latinField(field: number, text: string): this {
    this.open(field, text.length);
    this.at += this.buffer.write(text, this.at, 'latin1');
    return this;
  }

  raw(bytes: Uint8Array): this {
    this.buffer.set(bytes, this.at);
    this.at += bytes.length;
    return this;
  }

  uint32BigEndian(value: number): this {
    this.at = this.buffer.writeUInt32BE(value, this.at);
    return this;
  }

  byte(value: number): this {
    this.buffer[this.at++] = value;
    return this;
  }

  /** The bytes written, which must be all there is room for. */
  finish(): Buffer {
    if (this.at !== this.buffer.length) {
      throw new Error(`wrote ${this.at} bytes into a message of ${this.buffer.length}`);
    }
    return this.buffer;
  }
}

type FieldValue = number | string | Buffer;

/** A message from its fields, for messages that are rare: `undefined` leaves a field out. */
export function message(...fields: [field: number, value: FieldValue | undefined][]): Buffer {
  const present = fields.flatMap(([field, value]): [number, number | Buffer][] => {
    if (value === undefined) return [];
    return [[field, typeof value === 'string' ? Buffer.from(value, 'utf8') : value]];
  });
  const size = present.reduce(
    (sum, [, value]) =>
      sum + (typeof value === 'number' ? 1 + varintSize(value) : bytesFieldSize(value.length)),
    0,
  );
  const writer = new Writer(Buffer.allocUnsafe(size));
  for (const [field, value] of present) {
    if (typeof value === 'number') writer.varintField(field, value);
    else writer.bytesField(field, value);
  }
  return writer.finish();
}

/** Walks through a message's fields. A varint is a number, which loses precision beyond 2^53. */
export class Reader {
  private at = 0;
  constructor(private readonly buffer: Buffer) {}

  /** The next field's number, or 0 at the end; then read it with the method for its type, or skip it. */
  next(): number {
    if (this.at >= this.buffer.length) return 0;
    const tag = this.varint();
    this.wireType = tag % 8;
    const field = Math.floor(tag / 8);
    if (field === 0) throw new MalformedMessage('field number 0');
    return field;
  }

  private wireType = 0;

  number(): number {
    this.expect(WIRE_VARINT);
    return this.varint();
  }

  bytes(): Buffer {
    this.expect(WIRE_BYTES);
    const length = this.varint();
    const end = this.at + length;
    if (end > this.buffer.length) throw new MalformedMessage('a field is longer than its message');
    const view = this.buffer.subarray(this.at, end);
    this.at = end;
    return view;
  }

  text(): string {
    return this.bytes().toString('utf8');
  }

  skip(): void {
    if (this.wireType === WIRE_VARINT) this.varint();
    else if (this.wireType === WIRE_BYTES) this.bytes();
    else if (this.wireType === WIRE_FIXED64) this.advance(8);
    else if (this.wireType === WIRE_FIXED32) this.advance(4);
    else throw new MalformedMessage(`wire type ${this.wireType}`);
  }

  private expect(wireType: number): void {
    if (this.wireType !== wireType) throw new MalformedMessage(`wire type ${this.wireType}`);
  }

  private advance(count: number): void {
    this.at += count;
    if (this.at > this.buffer.length) throw new MalformedMessage('cut short');
  }

  private varint(): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 10; count++) {
      const byte = this.buffer[this.at++];
      if (byte === undefined) throw new MalformedMessage('cut short');
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
    throw new MalformedMessage('a number longer than ten bytes');
  }
}
