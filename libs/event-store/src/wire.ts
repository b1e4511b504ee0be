import { MalformedMessage } from './frames';

/**
 * The part of protobuf's wire format that the hot messages need: the generated classes cost several times
 * as much per event as everything else together. Reading never copies: byte fields are views.
 */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const varintSize = (value: number): number => {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
};

/** The size of a length-delimited field with a number below 16. */
export const fieldSize = (length: number): number => 1 + varintSize(length) + length;
export const varintFieldSize = (value: number): number => 1 + varintSize(value);

/** Writes into a buffer whose exact size the caller has computed. */
export class Writer {
  private at = 0;
  private readonly buffer: Buffer;
  constructor(size: number) {
    this.buffer = Buffer.allocUnsafe(size);
  }

  /** The header of a gRPC frame, before the message. */
  frameHeader(messageBytes: number): this {
    this.buffer[this.at] = 0;
    this.at = this.buffer.writeUInt32BE(messageBytes, this.at + 1);
    return this;
  }

  varint(field: number, value: number): this {
    this.buffer[this.at++] = (field << 3) | VARINT;
    this.number(value);
    return this;
  }

  /** Announces a length-delimited field: its bytes are written next. */
  open(field: number, length: number): this {
    this.buffer[this.at++] = (field << 3) | BYTES;
    this.number(length);
    return this;
  }

  bytes(field: number, bytes: Uint8Array): this {
    return this.open(field, bytes.length).raw(bytes);
  }

  raw(bytes: Uint8Array): this {
    this.buffer.set(bytes, this.at);
    this.at += bytes.length;
    return this;
  }

  /** Of a text whose characters are all below 128. */
  ascii(field: number, text: string): this {
    this.open(field, text.length);
    this.at += this.buffer.write(text, this.at, 'latin1');
    return this;
  }

  finish(): Buffer {
    if (this.at !== this.buffer.length) {
      throw new Error(`wrote ${this.at} bytes into a message of ${this.buffer.length}`);
    }
    return this.buffer;
  }

  private number(value: number): void {
    let rest = value;
    while (rest >= 128) {
      this.buffer[this.at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.buffer[this.at++] = rest;
  }
}

/** Goes through a message field by field: `next`, then the method for the field's type or `skip`. */
export class Reader {
  private wireType = 0;
  private at: number;
  private readonly end: number;

  constructor(
    private readonly buffer: Buffer,
    start = 0,
    end = buffer.length,
  ) {
    this.at = start;
    this.end = end;
  }

  /** The number of the next field, 0 at the end. */
  next(): number {
    if (this.at >= this.end) return 0;
    const tag = this.varint();
    this.wireType = tag & 7;
    return tag >>> 3;
  }

  /** Exact up to 2^53. */
  number(): number {
    return this.varint();
  }

  bigint(): bigint {
    const start = this.at;
    const value = this.varint();
    if (value <= Number.MAX_SAFE_INTEGER) return BigInt(value);
    this.at = start;
    let exact = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      exact |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, exact);
    }
  }

  bytes(): Buffer {
    const end = this.length();
    const view = this.buffer.subarray(this.at, end);
    this.at = end;
    return view;
  }

  text(): string {
    const end = this.length();
    const text = this.buffer.toString('utf8', this.at, end);
    this.at = end;
    return text;
  }

  /** Of a text whose characters are all below 128. */
  ascii(): string {
    const end = this.length();
    const text = this.buffer.toString('latin1', this.at, end);
    this.at = end;
    return text;
  }

  message(): Reader {
    const end = this.length();
    const inner = new Reader(this.buffer, this.at, end);
    this.at = end;
    return inner;
  }

  skip(): void {
    if (this.wireType === VARINT) this.varint();
    else if (this.wireType === BYTES) this.at = this.length();
    else if (this.wireType === FIXED64) this.at += 8;
    else if (this.wireType === FIXED32) this.at += 4;
    else throw new MalformedMessage(`wire type ${this.wireType}`);
  }

  private length(): number {
    const length = this.varint();
    const end = this.at + length;
    if (end > this.end) throw new MalformedMessage('a field is longer than it');
    return end;
  }

  private varint(): number {
    let byte = this.byte();
    if (byte < 128) return byte;
    let value = byte & 127;
    for (let scale = 128; ; scale *= 128) {
      byte = this.byte();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  private byte(): number {
    if (this.at >= this.end) throw new MalformedMessage('it is cut short');
    return this.buffer[this.at++] ?? 0;
  }
}
