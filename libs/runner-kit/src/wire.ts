import { ProtocolViolation } from './errors';

/** docs/supervisor-protocol.md: `u32 length · u8 type · u32 id · body`, little-endian. */
export const MAGIC = 0x58554d56;
export const PROTOCOL_VERSION = 1;
export const MAX_FRAME = 1_048_576;
export const MAX_DATA = 65_536;
const HEADER = 9;
const ALL_ONES = 2n ** 64n - 1n;

export interface Frame {
  readonly type: number;
  readonly id: number;
  readonly body: Buffer;
}

/** Cuts a byte stream into frames. What comes in is hostile: no frame may be longer than `maxFrame`. */
export class FrameDecoder {
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(public maxFrame: number) {}

  *push(chunk: Buffer): Generator<Frame> {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    for (;;) {
      const need = this.#frameSize();
      if (need === undefined || this.#heldBytes < need) return;
      const bytes = this.#take(need);
      yield {
        type: bytes.readUInt8(4),
        id: bytes.readUInt32LE(5),
        body: bytes.subarray(HEADER),
      };
    }
  }

  /** Bytes that are not a whole frame yet. */
  get rest(): number {
    return this.#heldBytes;
  }

  #frameSize(): number | undefined {
    if (this.#heldBytes < 4) return undefined;
    const length = this.#first(4).readUInt32LE(0);
    if (length < HEADER - 4 || length > this.maxFrame)
      throw new ProtocolViolation(`a frame of ${length} bytes`);
    return 4 + length;
  }

  #first(size: number): Buffer {
    const [head] = this.#held;
    if (head && head.length >= size) return head;
    const whole = Buffer.concat(this.#held);
    this.#held = [whole];
    return whole;
  }

  #take(size: number): Buffer {
    const head = this.#first(size);
    this.#heldBytes -= size;
    if (head.length === size) this.#held.shift();
    else this.#held[0] = head.subarray(size);
    return head.subarray(0, size);
  }
}

/** Reads a body to its last byte; anything missing or left over is a violation. */
export class BodyReader {
  #at = 0;
  constructor(
    readonly frame: Frame,
    readonly name: string,
  ) {}

  u8(): number {
    return this.#need(1).readUInt8(0);
  }
  u16(): number {
    return this.#need(2).readUInt16LE(0);
  }
  u32(): number {
    return this.#need(4).readUInt32LE(0);
  }
  i32(): number {
    return this.#need(4).readInt32LE(0);
  }
  u64(): number {
    const value = this.#need(8).readBigUInt64LE(0);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.#wrong(`a number of ${value}`);
    return Number(value);
  }
  /** A number of which 2⁶⁴−1 means "none". */
  u64OrNone(): number | undefined {
    const value = this.#need(8).readBigUInt64LE(0);
    if (value === ALL_ONES) return undefined;
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.#wrong(`a number of ${value}`);
    return Number(value);
  }
  /** For what a workload may set as it likes: too large a number is the largest. */
  u64Clamped(): number {
    const value = this.#need(8).readBigUInt64LE(0);
    return value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(value);
  }
  bytes(max: number): Buffer {
    const length = this.u32();
    if (length > max) this.#wrong(`${length} bytes where ${max} are allowed`);
    return this.#need(length);
  }
  text(max: number): string {
    return this.bytes(max).toString('utf8');
  }
  get done(): boolean {
    return this.#at === this.frame.body.length;
  }
  end(): void {
    if (!this.done) this.#wrong('bytes after its end');
  }

  #need(size: number): Buffer {
    const end = this.#at + size;
    if (end > this.frame.body.length) this.#wrong('too short');
    const bytes = this.frame.body.subarray(this.#at, end);
    this.#at = end;
    return bytes;
  }

  #wrong(what: string): never {
    throw new ProtocolViolation(`${this.name}: ${what}`);
  }
}

export class BodyWriter {
  readonly #parts: Buffer[] = [];
  #size = 0;

  u8(value: number): this {
    return this.#add(Buffer.of(value));
  }
  u16(value: number): this {
    const raw = Buffer.alloc(2);
    raw.writeUInt16LE(value);
    return this.#add(raw);
  }
  u32(value: number): this {
    const raw = Buffer.alloc(4);
    raw.writeUInt32LE(value);
    return this.#add(raw);
  }
  u64(value: number | 'all'): this {
    const raw = Buffer.alloc(8);
    raw.writeBigUInt64LE(value === 'all' ? ALL_ONES : BigInt(value));
    return this.#add(raw);
  }
  bytes(value: Uint8Array | string): this {
    const raw = typeof value === 'string' ? Buffer.from(value) : asBuffer(value);
    return this.u32(raw.length).#add(raw);
  }

  frame(type: number, id: number): Buffer {
    const header = Buffer.alloc(HEADER);
    header.writeUInt32LE(HEADER - 4 + this.#size, 0);
    header.writeUInt8(type, 4);
    header.writeUInt32LE(id, 5);
    return Buffer.concat([header, ...this.#parts]);
  }

  get size(): number {
    return this.#size;
  }

  #add(raw: Buffer): this {
    this.#parts.push(raw);
    this.#size += raw.length;
    return this;
  }
}

export const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export const FRAME = {
  hello: 0x01,
  error: 0x02,
  ok: 0x03,
  ping: 0x04,
  pong: 0x05,
  credit: 0x06,
  data: 0x07,
  end: 0x08,
  close: 0x09,
  closed: 0x0a,
  accepted: 0x0b,
  start: 0x10,
  cancel: 0x11,
  signal: 0x12,
  state: 0x13,
  watch: 0x14,
  read: 0x15,
  ack: 0x16,
  release: 0x17,
  stdin: 0x18,
  resize: 0x19,
  usage: 0x1a,
  ports: 0x20,
  dial: 0x21,
  fileStat: 0x30,
  fileList: 0x31,
  fileRead: 0x32,
  fileWrite: 0x33,
  fileRemove: 0x34,
  fileMkdir: 0x35,
  tarOut: 0x36,
  tarIn: 0x37,
  figures: 0x38,
  stop: 0x39,
  quit: 0x3a,
  freeze: 0x3b,
  thaw: 0x3c,
  scan: 0x3d,
  readMany: 0x3e,
  unpack: 0x3f,
  exec: 0x50,
  output: 0x51,
  stdinAck: 0x52,
  stdinReady: 0x53,
  port: 0x54,
  figuresAnswer: 0x55,
} as const;
