import { type Digest, isDigest } from './digest';

/** One entry of a tree. Paths and link targets are bytes, one for each character: `latin1`. */
export interface ManifestEntry {
  /** `hardlink`: another name of the file at `target`. `whiteout`: the base's entry there is gone. */
  readonly type: EntryType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly modifiedAtNs: bigint;
  /** Relative to the root; empty for the root itself. */
  readonly path: string;
  readonly target: string;
  readonly attributes: readonly Attribute[];
  /** Of files. */
  readonly content: FileContent | undefined;
}

export type EntryType = 'file' | 'directory' | 'link' | 'fifo' | 'hardlink' | 'whiteout';

export interface Attribute {
  readonly name: string;
  readonly value: Buffer;
}

export interface FileContent {
  /** Of the bytes that are not holes, one after the other. */
  readonly digest: Digest;
  /** Where those bytes belong; everything else is zeros. */
  readonly extents: readonly Extent[];
  /** Where they are kept, in the same order. */
  readonly segments: readonly Segment[];
}

export interface Extent {
  readonly offset: number;
  readonly length: number;
}

export interface Segment {
  readonly chunk: Digest;
  readonly offset: number;
  readonly length: number;
}

export const MAX_ENTRIES = 1_000_000;
const MAX_PATH = 4095;
const MAX_ATTRIBUTES = 65_536;
const MAX_RECORD = 64 * 1024 * 1024;

const letters = {
  file: 'f',
  directory: 'd',
  link: 'l',
  fifo: 'p',
  hardlink: 'h',
  whiteout: 'w',
} as const;
const types = new Map(Object.entries(letters).map(([type, letter]) => [letter, type as EntryType]));

export class ManifestRefused extends Error {
  readonly code = 'manifest_refused';
  constructor(detail: string) {
    super(`the checkpoint’s manifest is refused: ${detail}`);
    this.name = 'ManifestRefused';
  }
}

/**
 * What an entry is apart from its bytes: `u8 type · u32 mode · u32 uid · u32 gid · u64 size · i64 mtimeNs ·
 * bytes path · bytes target · u16 n · n × (bytes name · bytes value)`, little-endian.
 */
export function encodeHead(entry: Omit<ManifestEntry, 'content'>): Buffer {
  const { path, target } = entry;
  const attributes = [...entry.attributes].sort((a, b) => (a.name < b.name ? -1 : 1));
  const size = attributes.reduce((sum, { name, value }) => sum + 8 + name.length + value.length, 0);
  const out = Buffer.allocUnsafe(39 + path.length + target.length + size);
  let at = out.write(letters[entry.type], 0, 'latin1');
  for (const number of [entry.mode, entry.uid, entry.gid]) at = out.writeUInt32LE(number, at);
  at = out.writeBigUInt64LE(BigInt(entry.size), at);
  at = out.writeBigInt64LE(entry.modifiedAtNs, at);
  const text = (value: string) => {
    at = out.writeUInt32LE(value.length, at);
    at += out.write(value, at, 'latin1');
  };
  text(path);
  text(target);
  at = out.writeUInt16LE(attributes.length, at);
  for (const { name, value } of attributes) {
    text(name);
    at = out.writeUInt32LE(value.length, at);
    at += value.copy(out, at);
  }
  return out;
}

/** What makes a tree this tree: the head and, of files, what is in them. Where it is kept is not part of it. */
export function encodeIdentity(entry: ManifestEntry): Buffer {
  const head = encodeHead(entry);
  const { content } = entry;
  if (!content) return head;
  const tail = Buffer.allocUnsafe(36 + 16 * content.extents.length);
  let at = tail.write(content.digest, 0, 'hex');
  at = tail.writeUInt32LE(content.extents.length, at);
  for (const { offset, length } of content.extents) {
    at = tail.writeBigUInt64LE(BigInt(offset), at);
    at = tail.writeBigUInt64LE(BigInt(length), at);
  }
  return Buffer.concat([head, tail]);
}

/** `u32 length · identity · u32 n · n × (32 bytes chunk · u32 offset · u32 length)`. */
export function encodeRecord(identity: Buffer, segments: readonly Segment[]): Buffer {
  const out = Buffer.allocUnsafe(8 + identity.length + 40 * segments.length);
  let at = out.writeUInt32LE(identity.length, 0);
  at += identity.copy(out, at);
  at = out.writeUInt32LE(segments.length, at);
  for (const { chunk, offset, length } of segments) {
    at += out.write(chunk, at, 'hex');
    at = out.writeUInt32LE(offset, at);
    at = out.writeUInt32LE(length, at);
  }
  return out;
}

/** Reads records off hostile bytes, in any pieces. */
export class RecordReader {
  private held: Buffer = Buffer.alloc(0);

  *push(bytes: Buffer): Generator<{ readonly entry: ManifestEntry; readonly identity: Buffer }> {
    this.held = this.held.length === 0 ? bytes : Buffer.concat([this.held, bytes]);
    for (let size = this.recordSize(); size !== undefined; size = this.recordSize()) {
      const record = this.held.subarray(0, size);
      this.held = this.held.subarray(size);
      yield decodeRecord(record);
    }
  }

  end(): void {
    if (this.held.length > 0) throw new ManifestRefused('it is cut off');
  }

  private recordSize(): number | undefined {
    if (this.held.length < 4) return undefined;
    const identity = this.held.readUInt32LE(0);
    if (identity > MAX_RECORD) throw new ManifestRefused('an entry without end');
    if (this.held.length < 8 + identity) return undefined;
    const segments = this.held.readUInt32LE(4 + identity);
    if (segments * 40 > MAX_RECORD) throw new ManifestRefused('a file in too many pieces');
    const size = 8 + identity + 40 * segments;
    return this.held.length < size ? undefined : size;
  }
}

function decodeRecord(record: Buffer): { entry: ManifestEntry; identity: Buffer } {
  const length = record.readUInt32LE(0);
  const identity = record.subarray(4, 4 + length);
  const bytes = new Cursor(identity);
  const type = types.get(bytes.text(1) as 'f');
  if (!type) throw new ManifestRefused('an entry of an unknown type');
  const [mode, uid, gid] = [bytes.u32(), bytes.u32(), bytes.u32()];
  const size = bytes.u64();
  const modifiedAtNs = bytes.i64();
  const path = bytes.text(bytes.u32());
  const target = bytes.text(bytes.u32());
  const attributes = bytes.attributes();
  const head = { type, mode, uid, gid, size, modifiedAtNs, path, target, attributes };
  const content =
    type === 'file' ? bytes.content(segmentsOf(record.subarray(4 + length))) : undefined;
  bytes.end();
  const entry = { ...head, content };
  checkEntry(entry);
  return { entry, identity };
}

function segmentsOf(bytes: Buffer): Segment[] {
  const count = bytes.readUInt32LE(0);
  return Array.from({ length: count }, (_, n) => ({
    chunk: bytes.toString('hex', 4 + 40 * n, 36 + 40 * n),
    offset: bytes.readUInt32LE(36 + 40 * n),
    length: bytes.readUInt32LE(40 + 40 * n),
  }));
}

class Cursor {
  private at = 0;
  constructor(private readonly bytes: Buffer) {}

  u32(): number {
    return this.take(4).readUInt32LE(0);
  }
  u64(): number {
    const value = this.take(8).readBigUInt64LE(0);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new ManifestRefused(`a number of ${value}`);
    return Number(value);
  }
  i64(): bigint {
    return this.take(8).readBigInt64LE(0);
  }
  text(length: number): string {
    return this.take(length).toString('latin1');
  }
  attributes(): Attribute[] {
    return Array.from({ length: this.take(2).readUInt16LE(0) }, () => ({
      name: this.text(this.u32()),
      value: Buffer.from(this.take(this.u32())),
    }));
  }
  content(segments: readonly Segment[]): FileContent {
    const digest = this.take(32).toString('hex');
    const count = this.u32();
    if (count * 16 > this.bytes.length) throw new ManifestRefused('it is cut off');
    const extents = Array.from({ length: count }, () => ({
      offset: this.u64(),
      length: this.u64(),
    }));
    return { digest, extents, segments };
  }
  end(): void {
    if (this.at !== this.bytes.length) throw new ManifestRefused('bytes after an entry’s end');
  }
  private take(length: number): Buffer {
    const end = this.at + length;
    if (end > this.bytes.length) throw new ManifestRefused('it is cut off');
    const part = this.bytes.subarray(this.at, end);
    this.at = end;
    return part;
  }
}

/** Throws `ManifestRefused` for an entry that no honest tree has. */
export function checkEntry(entry: ManifestEntry): void {
  const refuse = (detail: string): never => {
    throw new ManifestRefused(`${detail}: ${JSON.stringify(entry.path.slice(0, 200))}`);
  };
  if (!isPath(entry.path) || (entry.path === '' && entry.type !== 'directory'))
    refuse('a path that cannot be used');
  if (entry.target.length > MAX_PATH || entry.target.includes('\0')) refuse('a link target');
  if (entry.type === 'hardlink' && !(entry.target !== '' && isPath(entry.target)))
    refuse('a hard link to nothing');
  if (entry.type === 'link' && entry.target === '') refuse('a link to nothing');
  if (entry.mode > 0o7777) refuse('a mode');
  const size = entry.attributes.reduce(
    (sum, { name, value }) => sum + name.length + value.length,
    0,
  );
  if (size > 4 * MAX_ATTRIBUTES || entry.attributes.some(({ name }) => !isAttribute(name)))
    refuse('an attribute that is not kept');
  if (entry.content) checkContent(entry.content, entry.size, refuse);
}

function checkContent(
  { digest, extents, segments }: FileContent,
  size: number,
  refuse: (detail: string) => never,
): void {
  if (!isDigest(digest)) refuse('a digest');
  let end = 0;
  let bytes = 0;
  for (const { offset, length } of extents) {
    if (length < 1 || offset < end || offset + length > size) refuse('bytes out of place');
    end = offset + length;
    bytes += length;
  }
  for (const { chunk, offset, length } of segments) {
    if (!isDigest(chunk) || length < 1 || offset + length > 2 ** 32) refuse('a piece out of place');
    bytes -= length;
  }
  if (bytes !== 0) refuse('not as many bytes as it says');
}

export function isPath(path: string): boolean {
  if (path === '') return true;
  if (path.length > MAX_PATH || path.includes('\0')) return false;
  return path
    .split('/')
    .every((part) => part !== '' && part !== '.' && part !== '..' && part.length <= 255);
}

const kept = new Set([
  'security.capability',
  'system.posix_acl_access',
  'system.posix_acl_default',
]);
const isAttribute = (name: string): boolean =>
  name.length <= 255 &&
  !name.includes('\0') &&
  (kept.has(name) || (name.startsWith('user.') && !name.startsWith('user.overlay.')));

/** The order of a tree: whatever is in a directory comes right after it, by bytes. */
export function inTreeOrder(a: string, b: string): boolean {
  const length = Math.min(a.length, b.length);
  let at = 0;
  while (at < length && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  return at === length ? a.length < b.length : rankOf(a, at) < rankOf(b, at);
}

const SLASH = 0x2f;
/** Before every byte that a name may have. */
function rankOf(path: string, at: number): number {
  const code = path.charCodeAt(at);
  return code === SLASH ? 0 : code;
}
