import { createHash } from 'node:crypto';
import { Chunker } from './chunker';
import type { ChunkStore } from './chunks';
import { type Digest, isDigest } from './digest';
import {
  encodeIdentity,
  encodeRecord,
  inTreeOrder,
  MAX_ENTRIES,
  type ManifestEntry,
  ManifestRefused,
  RecordReader,
} from './manifest';

/** What stands at the head of a stored checkpoint; its own digest is the checkpoint's name. */
export interface CheckpointRoot<Base = unknown> {
  readonly format: 'vmux-checkpoint';
  readonly version: 1;
  /** Of the tree alone: the same for the same files, wherever and however they are kept. */
  readonly treeDigest: Digest;
  readonly entries: number;
  /** Of all files, without holes. */
  readonly bytes: number;
  readonly base: Base;
  /** The pieces of the manifest. */
  readonly manifest: readonly Digest[];
}

const MAX_MANIFEST_PIECES = 25_000;

/** Writes a manifest entry by entry: whiteouts first, then the tree in its order. */
export class ManifestWriter {
  private readonly hash = createHash('sha256');
  private readonly puts: Promise<{ digest: Digest; storedBytes: number }>[] = [];
  private readonly chunker: Chunker;
  private readonly order = new TreeOrder();
  private entries = 0;
  private bytes = 0;

  constructor(private readonly store: ChunkStore) {
    this.chunker = new Chunker((chunk) => {
      const put = this.store.put(chunk);
      put.catch(() => undefined);
      this.puts.push(put);
    });
  }

  add(entry: ManifestEntry): void {
    this.order.check(entry);
    const identity = encodeIdentity(entry);
    const { extents = [], segments = [] } = entry.content ?? {};
    let record = encodeRecord(identity, segments);
    this.hash.update(record.subarray(0, 4 + identity.length));
    while (record.length > 0) record = record.subarray(this.chunker.push(record));
    this.entries += 1;
    for (const { length } of extents) this.bytes += length;
  }

  /** Makes everything put so far durable, and then the root. */
  async finish(base: unknown): Promise<WrittenCheckpoint> {
    this.chunker.cut();
    const pieces = await Promise.all(this.puts);
    const root: CheckpointRoot = {
      format: 'vmux-checkpoint',
      version: 1,
      treeDigest: this.hash.digest('hex'),
      entries: this.entries,
      bytes: this.bytes,
      base,
      manifest: pieces.map(({ digest }) => digest),
    };
    await this.store.sync();
    const { digest, storedBytes } = await this.store.put(Buffer.from(JSON.stringify(root)));
    await this.store.sync();
    const manifestBytes = pieces.reduce((sum, piece) => sum + piece.storedBytes, storedBytes);
    return { root, artifact: digest, storedBytes: manifestBytes };
  }
}

export interface WrittenCheckpoint {
  readonly root: CheckpointRoot;
  readonly artifact: Digest;
  readonly storedBytes: number;
}

/** Throws `ArtifactNotFound`, `DigestMismatch` or `ManifestRefused`. */
export async function readRoot(store: ChunkStore, artifact: Digest): Promise<CheckpointRoot> {
  const text = (await store.get(artifact)).toString();
  let root: CheckpointRoot;
  try {
    root = JSON.parse(text) as CheckpointRoot;
  } catch (error) {
    throw new ManifestRefused(`its root is not JSON (${String(error).slice(0, 100)})`);
  }
  const sound =
    root?.format === 'vmux-checkpoint' &&
    root.version === 1 &&
    isDigest(String(root.treeDigest)) &&
    Number.isSafeInteger(root.entries) &&
    root.entries <= MAX_ENTRIES &&
    Array.isArray(root.manifest) &&
    root.manifest.length <= MAX_MANIFEST_PIECES &&
    root.manifest.every((digest) => isDigest(String(digest)));
  if (!sound) throw new ManifestRefused('its root is of another form');
  return root;
}

/** The entries of a stored checkpoint, each checked, the whole against the root's digest at the end. */
export async function* readEntries(
  store: ChunkStore,
  root: CheckpointRoot,
): AsyncGenerator<ManifestEntry> {
  const reader = new RecordReader();
  const order = new TreeOrder();
  const hash = createHash('sha256');
  let count = 0;
  for (const piece of root.manifest)
    for (const { entry, identity } of reader.push(await store.get(piece))) {
      if (++count > root.entries) throw new ManifestRefused('more entries than it says');
      order.check(entry);
      hash.update(lengthOf(identity)).update(identity);
      yield entry;
    }
  reader.end();
  if (count !== root.entries || hash.digest('hex') !== root.treeDigest)
    throw new ManifestRefused('the entries are not those of its root');
}

/** Every piece that a stored checkpoint needs, its own included. */
export async function* piecesOf(store: ChunkStore, artifact: Digest): AsyncGenerator<Digest> {
  yield artifact;
  const root = await readRoot(store, artifact);
  yield* root.manifest;
  for await (const { content } of readEntries(store, root))
    for (const { chunk } of content?.segments ?? []) yield chunk;
}

/** No entry twice, none before the directory it is in, no hard link before its file. */
class TreeOrder {
  private last: string | undefined;
  private inTree = false;
  private readonly files = new Set<string>();

  check({ type, path, target }: ManifestEntry): void {
    const first = !this.inTree && type !== 'whiteout';
    if (type === 'whiteout' && this.inTree) throw new ManifestRefused('a whiteout after the tree');
    this.inTree = type !== 'whiteout';
    if (!first && this.last !== undefined && !inTreeOrder(this.last, path))
      throw new ManifestRefused(`out of order: ${JSON.stringify(path.slice(0, 200))}`);
    this.last = path;
    if (type === 'file') this.files.add(path);
    if (type === 'hardlink' && !this.files.has(target))
      throw new ManifestRefused(`a hard link to nothing: ${JSON.stringify(path.slice(0, 200))}`);
  }
}

const lengthOf = (bytes: Buffer): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return length;
};
