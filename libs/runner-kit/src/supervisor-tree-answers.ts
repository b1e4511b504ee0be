import { ProtocolViolation } from './errors';

/** Reads a stream of hostile bytes piece by piece, as many as are asked for. */
export class ByteFeed {
  #held: Buffer = Buffer.alloc(0);
  readonly #source: AsyncIterator<Buffer>;

  constructor(
    source: AsyncIterable<Buffer>,
    readonly name: string,
  ) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async take(length: number): Promise<Buffer> {
    while (this.#held.length < length) {
      const next = await this.#source.next();
      if (next.done) throw new ProtocolViolation(`${this.name}: cut off`);
      this.#held = this.#held.length === 0 ? next.value : Buffer.concat([this.#held, next.value]);
    }
    const taken = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    return taken;
  }

  /** Everything after what was taken, as it comes. */
  async *rest(): AsyncGenerator<Buffer> {
    if (this.#held.length > 0) yield this.#held;
    for (let next = await this.#source.next(); !next.done; next = await this.#source.next())
      yield next.value;
  }

  async bytes(max: number): Promise<Buffer> {
    const length = (await this.take(4)).readUInt32LE(0);
    if (length > max)
      throw new ProtocolViolation(`${this.name}: ${length} bytes where ${max} are allowed`);
    return this.take(length);
  }

  async end(): Promise<void> {
    if (this.#held.length > 0 || !(await this.#source.next()).done)
      throw new ProtocolViolation(`${this.name}: bytes after its end`);
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}

export interface ScannedEntry {
  readonly type: 'file' | 'directory' | 'link' | 'fifo';
  /** A process may change its bytes without changing its times. */
  readonly mapped: boolean;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** How many names it has. */
  readonly links: number;
  readonly size: number;
  readonly modifiedAtNs: bigint;
  readonly changedAtNs: bigint;
  /** What two names of one file share. */
  readonly identity: string;
  /** Relative to the root, one character for each byte; empty for the root. */
  readonly path: string;
  readonly target: string;
  readonly attributes: readonly { readonly name: string; readonly value: Buffer }[];
}

/** What a file was when it was read. */
export interface FileStatus {
  readonly size: number;
  readonly modifiedAtNs: bigint;
  readonly changedAtNs: bigint;
}

export type ReadFileItem =
  /** A file begins. */
  | { readonly kind: 'begin'; readonly status: FileStatus }
  /** A block that is not all zeros. */
  | { readonly kind: 'block'; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: 'end'; readonly status: FileStatus }
  | { readonly kind: 'failed'; readonly errno: number };

/** Blocks are aligned to their size and whole, but for a file's last. */
export const BLOCK_BYTES = 65_536;

const KINDS = { begin: 0x46, block: 0x44, end: 0x45, failed: 0x58 } as const;

/** The next item of a file's bytes; `size` is what its beginning said. */
export async function readFileItem(feed: ByteFeed): Promise<ReadFileItem> {
  const kind = (await feed.take(1)).readUInt8(0);
  switch (kind) {
    case KINDS.begin:
      return { kind: 'begin', status: await readStatus(feed) };
    case KINDS.end:
      return { kind: 'end', status: await readStatus(feed) };
    case KINDS.block: {
      const offset = (await feed.take(8)).readBigUInt64LE(0);
      if (offset > BigInt(Number.MAX_SAFE_INTEGER) || offset % BigInt(BLOCK_BYTES) !== 0n)
        throw new ProtocolViolation('READ_MANY: a block out of place');
      return { kind: 'block', offset: Number(offset), bytes: await feed.bytes(BLOCK_BYTES) };
    }
    case KINDS.failed:
      return { kind: 'failed', errno: (await feed.take(4)).readUInt32LE(0) };
    default:
      throw new ProtocolViolation('READ_MANY: an unknown item');
  }
}

async function readStatus(feed: ByteFeed): Promise<FileStatus> {
  const raw = await feed.take(32);
  const size = raw.readBigUInt64LE(0);
  if (size > BigInt(Number.MAX_SAFE_INTEGER))
    throw new ProtocolViolation('READ_MANY: an absurd size');
  return {
    size: Number(size),
    modifiedAtNs: raw.readBigInt64LE(8),
    changedAtNs: raw.readBigInt64LE(16),
  };
}
