import { createHash } from 'node:crypto';
import { MAX_CHUNK_BYTES } from './chunks';

const MIN_BYTES = 128 * 1024;
/** Below it a boundary is harder to find than beyond: sizes gather around it. */
const NORMAL_BYTES = 512 * 1024;
const HARD_MASK = 0xffff_f000 >>> 0;
const EASY_MASK = 0xffff_c000 >>> 0;
/** How many bytes the rolling sum remembers. */
const WINDOW = 32;

/** Part of the stored form: other numbers would find other boundaries and share nothing with the past. */
const GEAR = Uint32Array.from({ length: 256 }, (_, byte) =>
  createHash('sha256').update(`vmux gear ${byte}`).digest().readUInt32LE(0),
);

/**
 * Cuts a stream of bytes where its content says so, so that a change moves only the boundaries next to it.
 * `onChunk` gets each piece, which is its own from then on.
 */
export class Chunker {
  private held = Buffer.allocUnsafe(MAX_CHUNK_BYTES);
  private length = 0;
  private scanned = 0;
  private sum = 0;

  constructor(private readonly onChunk: (chunk: Buffer) => void) {}

  /** Bytes of the piece that is being filled. */
  get pending(): number {
    return this.length;
  }

  /**
   * Takes as much as belongs to the current piece, at least one byte, and says how much: a caller that
   * wants to know what lies in which piece goes on with the rest.
   */
  push(bytes: Buffer): number {
    const taken = Math.min(bytes.length, MAX_CHUNK_BYTES - this.length);
    bytes.copy(this.held, this.length, 0, taken);
    const end = this.length + taken;
    const boundary = this.scan(end);
    if (boundary === undefined) {
      this.length = end;
      if (end === MAX_CHUNK_BYTES) this.cut();
      return taken;
    }
    const used = boundary - this.length;
    this.length = boundary;
    this.cut();
    return used;
  }

  /** Ends the current piece here. */
  cut(): void {
    if (this.length === 0) return;
    const chunk = Buffer.from(this.held.subarray(0, this.length));
    this.length = 0;
    this.scanned = 0;
    this.sum = 0;
    this.onChunk(chunk);
  }

  private scan(end: number): number | undefined {
    const { held } = this;
    let sum = this.sum;
    let at = Math.max(this.scanned, MIN_BYTES - WINDOW);
    for (; at < end; at++) {
      sum = ((sum << 1) + (GEAR[held[at] as number] as number)) >>> 0;
      if (at < MIN_BYTES) continue;
      const mask = at < NORMAL_BYTES ? HARD_MASK : EASY_MASK;
      if ((sum & mask) === 0) return at + 1;
    }
    this.sum = sum;
    this.scanned = Math.max(at, this.scanned);
    return undefined;
  }
}
