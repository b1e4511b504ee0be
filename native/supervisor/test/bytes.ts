/** Reads little-endian fields in order. */
export class Bytes {
  private at = 0;

  constructor(readonly buffer: Buffer) {}

  u8(): number {
    return this.buffer.readUInt8(this.move(1));
  }
  u16(): number {
    return this.buffer.readUInt16LE(this.move(2));
  }
  u32(): number {
    return this.buffer.readUInt32LE(this.move(4));
  }
  i32(): number {
    return this.buffer.readInt32LE(this.move(4));
  }
  u64(): bigint {
    return this.buffer.readBigUInt64LE(this.move(8));
  }
  bytes(): Buffer {
    const length = this.u32();
    const from = this.move(length);
    return this.buffer.subarray(from, from + length);
  }
  get left(): number {
    return this.buffer.length - this.at;
  }

  private move(count: number): number {
    const from = this.at;
    this.at += count;
    return from;
  }
}

/** Writes little-endian fields in order. */
export class Body {
  private readonly parts: Buffer[] = [];

  u8(value: number): this {
    return this.add(1, (b) => b.writeUInt8(value));
  }
  u16(value: number): this {
    return this.add(2, (b) => b.writeUInt16LE(value));
  }
  u32(value: number): this {
    return this.add(4, (b) => b.writeUInt32LE(value));
  }
  u64(value: number | bigint): this {
    return this.add(8, (b) => b.writeBigUInt64LE(BigInt(value)));
  }
  bytes(value: string | Uint8Array): this {
    const data = Buffer.from(value as Uint8Array);
    this.u32(data.length);
    this.parts.push(data);
    return this;
  }
  raw(value: Buffer): this {
    this.parts.push(value);
    return this;
  }
  toBuffer(): Buffer {
    return Buffer.concat(this.parts);
  }

  private add(size: number, write: (b: Buffer) => void): this {
    const part = Buffer.alloc(size);
    write(part);
    this.parts.push(part);
    return this;
  }
}
