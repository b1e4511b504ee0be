import { ProtocolViolation } from './errors';
import { BLOCK_BYTES, type ScannedEntry } from './supervisor-tree-answers';

const types = new Map([
  [0x66, 'file'],
  [0x64, 'directory'],
  [0x6c, 'link'],
  [0x70, 'fifo'],
] as const);
const FIXED = 2 + 4 * 4 + 8 * 5;
const END = 0x7a;
const END_BYTES = 9;
const MAX_PATH = 4096;
const MAX_NAME = 255;
/** Of everything that is said of one entry. */
const MAX_ENTRY = 1024 * 1024;

/**
 * Reads the entries of a scan off hostile bytes, in any pieces. Not a promise for each of its fields: there
 * may be a million entries, and while they are read the sandbox stands still.
 */
export class ScanReader {
  private held: Buffer = Buffer.alloc(0);
  private waiting: Buffer[] = [];
  private waitingBytes = 0;
  private count = 0;
  private ended = false;

  /** Entries that are whole now. */
  push(bytes: Buffer): ScannedEntry[] {
    this.waiting.push(bytes);
    this.waitingBytes += bytes.length;
    // An entry that comes byte by byte is not copied and looked at with every one of them.
    return this.waitingBytes < this.held.length ? [] : this.read();
  }

  /** There is nothing more to come. */
  finish(): ScannedEntry[] {
    const entries = this.read();
    if (!this.ended) throw new ProtocolViolation('SCAN: cut off');
    return entries;
  }

  private read(): ScannedEntry[] {
    const held = Buffer.concat([this.held, ...this.waiting]);
    const entries: ScannedEntry[] = [];
    let at = 0;
    while (!this.ended) {
      const end = endOf(held, at);
      if (end === undefined) break;
      if (held[at] === END) this.end(held.readBigUInt64LE(at + 1), this.count + entries.length);
      else entries.push(entryAt(held, at));
      at = end;
    }
    if (this.ended && at < held.length) throw new ProtocolViolation('SCAN: bytes after its end');
    this.count += entries.length;
    this.held = held.subarray(at);
    this.waiting = [];
    this.waitingBytes = 0;
    return entries;
  }

  private end(said: bigint, count: number): void {
    if (said !== BigInt(count)) throw new ProtocolViolation('SCAN: entries are missing');
    this.ended = true;
  }
}

/** Where the entry that begins there ends; undefined while that is not to be seen. */
function endOf(held: Buffer, begin: number): number | undefined {
  const letter = held[begin];
  if (letter === undefined) return undefined;
  const whole = (end: number) => (end <= held.length ? end : undefined);
  if (letter === END) return whole(begin + END_BYTES);
  if (!types.has(letter as 0x66)) throw new ProtocolViolation('SCAN: an unknown type');
  let at: number | undefined = begin + FIXED;
  const skip = (max: number) => {
    if (at !== undefined) at = afterText(held, at, max);
  };
  skip(MAX_PATH);
  skip(MAX_PATH);
  if (at === undefined || at + 2 > held.length) return undefined;
  let left = held.readUInt16LE(at);
  for (at += 2; left > 0 && at !== undefined; left--) {
    skip(MAX_NAME);
    skip(BLOCK_BYTES);
    if (at !== undefined && at - begin > MAX_ENTRY)
      throw new ProtocolViolation('SCAN: an entry without end');
  }
  return at === undefined ? undefined : whole(at);
}

function afterText(held: Buffer, at: number, max: number): number | undefined {
  if (at + 4 > held.length) return undefined;
  const length = held.readUInt32LE(at);
  if (length > max) throw new ProtocolViolation(`SCAN: ${length} bytes where ${max} are allowed`);
  return at + 4 + length;
}

/** Of bytes that are known to hold it whole. */
function entryAt(held: Buffer, begin: number): ScannedEntry {
  const size = held.readBigUInt64LE(begin + 18);
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw new ProtocolViolation('SCAN: an absurd size');
  let at = begin + FIXED;
  const bytes = (): Buffer => {
    const from = at + 4;
    at = from + held.readUInt32LE(at);
    return held.subarray(from, at);
  };
  const text = (): string => {
    const from = at + 4;
    at = from + held.readUInt32LE(at);
    return from === at ? '' : held.toString('latin1', from, at);
  };
  const path = text();
  const target = text();
  const attributes = [];
  let left = held.readUInt16LE(at);
  for (at += 2; left > 0; left--) attributes.push({ name: text(), value: Buffer.from(bytes()) });
  return {
    type: types.get(held[begin] as 0x66) as ScannedEntry['type'],
    mapped: (held.readUInt8(begin + 1) & 1) !== 0,
    mode: held.readUInt32LE(begin + 2),
    uid: held.readUInt32LE(begin + 6),
    gid: held.readUInt32LE(begin + 10),
    links: held.readUInt32LE(begin + 14),
    size: Number(size),
    modifiedAtNs: held.readBigInt64LE(begin + 26),
    changedAtNs: held.readBigInt64LE(begin + 34),
    identity: held.toString('latin1', begin + 42, begin + 58),
    path,
    target,
    attributes,
  };
}
