import { createHash, type Hash } from 'node:crypto';
import {
  type CheckpointRoot,
  type ChunkStore,
  encodeHead,
  type ManifestEntry,
  ManifestRefused,
  readEntries,
  type Segment,
} from '@vmux/artifacts';
import { isExcluded } from './checkpoint-tree';

const LOOK_AHEAD_PIECES = 6;
const LOOK_AHEAD_STEPS = 2048;
const KEPT_PIECES = 24;
const MAX_PIECE = 1024 * 1024;
const SENT_AT_ONCE = 64 * 1024;

export type Step =
  | { readonly kind: 'entry'; readonly entry: ManifestEntry }
  | { readonly kind: 'bytes'; readonly segment: Segment; readonly piece: Promise<Buffer> }
  | { readonly kind: 'end' };

/**
 * A stored checkpoint, or what is wanted of it, as UNPACK takes it: each entry's head, and of a file its
 * bytes by offset.
 */
export async function* unpackStream(
  store: ChunkStore,
  root: CheckpointRoot,
  wanted: (entry: ManifestEntry) => boolean = () => true,
): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let size = 0;
  for await (const part of partsOf(store, entriesOf(store, root, wanted))) {
    held.push(part);
    size += part.length;
    if (size < SENT_AT_ONCE) continue;
    yield Buffer.concat(held);
    held = [];
    size = 0;
  }
  yield Buffer.concat(held);
}

async function* entriesOf(
  store: ChunkStore,
  root: CheckpointRoot,
  wanted: (entry: ManifestEntry) => boolean,
): AsyncGenerator<ManifestEntry> {
  for await (const entry of readEntries(store, root)) if (wanted(entry)) yield entry;
}

async function* partsOf(
  store: ChunkStore,
  entries: AsyncIterable<ManifestEntry>,
): AsyncGenerator<Buffer> {
  let file: FileBytes | undefined;
  for await (const step of lookingAhead(stepsOf(store, entries))) {
    if (step.kind === 'entry') {
      yield encodeHead(step.entry);
      file = step.entry.content && new FileBytes(step.entry);
    } else if (step.kind === 'bytes') {
      const { offset, length } = step.segment;
      const piece = await step.piece;
      if (offset + length > piece.length) throw new ManifestRefused('bytes beyond a piece’s end');
      if (file) yield* file.put(piece.subarray(offset, offset + length));
    } else {
      file?.end();
      yield Buffer.alloc(4);
    }
  }
  yield Buffer.from('z');
}

export async function* stepsOf(
  store: ChunkStore,
  entries: AsyncIterable<ManifestEntry>,
): AsyncGenerator<Step> {
  const pieces = new Pieces(store);
  for await (const entry of entries) {
    if (isExcluded(entry.path)) throw new ManifestRefused(`/${entry.path} is not a session’s`);
    yield { kind: 'entry', entry };
    if (!entry.content) continue;
    for (const segment of entry.content.segments)
      yield { kind: 'bytes', segment, piece: pieces.get(segment.chunk) };
    yield { kind: 'end' };
  }
}

/** Fetches what comes next while what is here is being sent. */
export async function* lookingAhead(steps: AsyncGenerator<Step>): AsyncGenerator<Step> {
  const waiting: Step[] = [];
  const wanted = new Map<string, number>();
  const count = (step: Step, by: 1 | -1) => {
    if (step.kind !== 'bytes') return;
    const { chunk } = step.segment;
    const times = (wanted.get(chunk) ?? 0) + by;
    if (times === 0) wanted.delete(chunk);
    else wanted.set(chunk, times);
  };
  for await (const step of steps) {
    waiting.push(step);
    count(step, 1);
    while (wanted.size > LOOK_AHEAD_PIECES || waiting.length > LOOK_AHEAD_STEPS) {
      const next = waiting.shift() as Step;
      count(next, -1);
      yield next;
    }
  }
  yield* waiting;
}

/** The last few pieces: small files next to one another share theirs. */
class Pieces {
  private readonly kept = new Map<string, Promise<Buffer>>();
  constructor(private readonly store: ChunkStore) {}

  get(digest: string): Promise<Buffer> {
    const found = this.kept.get(digest) ?? this.store.get(digest);
    found.catch(() => undefined);
    this.kept.delete(digest);
    this.kept.set(digest, found);
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= KEPT_PIECES) break;
      this.kept.delete(oldest);
    }
    return found;
  }
}

/** Puts a file's bytes where its extents say, and compares them with its digest. */
class FileBytes {
  private readonly hash: Hash = createHash('sha256');
  private extent = 0;
  private within = 0;
  constructor(private readonly entry: ManifestEntry) {}

  *put(bytes: Buffer): Generator<Buffer> {
    this.hash.update(bytes);
    for (let rest = bytes; rest.length > 0; ) {
      const extent = this.entry.content?.extents[this.extent];
      if (!extent) throw new ManifestRefused('more bytes than it says');
      const length = Math.min(rest.length, extent.length - this.within, MAX_PIECE);
      const header = Buffer.alloc(12);
      header.writeUInt32LE(length, 0);
      header.writeBigUInt64LE(BigInt(extent.offset + this.within), 4);
      yield header;
      yield rest.subarray(0, length);
      rest = rest.subarray(length);
      this.within += length;
      if (this.within < extent.length) continue;
      this.extent += 1;
      this.within = 0;
    }
  }

  end(): void {
    if (this.hash.digest('hex') !== this.entry.content?.digest)
      throw new ManifestRefused(`/${this.entry.path} is not the file that was stored`);
  }
}
