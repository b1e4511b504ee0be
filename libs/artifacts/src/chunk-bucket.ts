import { buffer } from 'node:stream/consumers';
import type { Bucket } from './bucket';
import { decodeChunk, encodeChunk } from './chunk-codec';
import { DEFAULT_GRACE_MS, inParallel } from './chunk-directory';
import { type ChunkStore, MAX_CHUNK_BYTES, type PutChunk } from './chunks';
import { type Digest, digestOf, isDigest } from './digest';
import type { Collectable } from './garbage';
import { ArtifactNotFound, DigestMismatch } from './port';

const AT_ONCE = 32;
const MAX_STORED_BYTES = MAX_CHUNK_BYTES + 1024;

/** Pieces as objects of a bucket: `chunks/<64 hex>`. An object appears whole or not at all. */
export class ChunkBucket implements ChunkStore, Collectable {
  /** Old ones that were made young, to be seen once more before anything refers to them. */
  private renewed = new Set<Digest>();

  constructor(
    private readonly bucket: Bucket,
    private readonly graceMs = DEFAULT_GRACE_MS,
  ) {}

  async put(clear: Uint8Array): Promise<PutChunk> {
    const digest = digestOf(clear);
    if (await this.keep(digest)) return { digest, storedBytes: 0 };
    const stored = Buffer.concat(await encodeChunk(clear));
    await this.bucket.put(nameOf(digest), stored, stored.length);
    return { digest, storedBytes: stored.length };
  }

  /** What a collection may have removed while it was being renewed is missed here. */
  async sync(): Promise<void> {
    const renewed = this.renewed;
    this.renewed = new Set();
    const lost = await this.missing(renewed);
    if (lost.size > 0) throw new ArtifactNotFound([...lost][0] ?? '');
  }

  async get(digest: Digest): Promise<Buffer> {
    const found = isDigest(digest) ? await this.bucket.get(nameOf(digest)) : undefined;
    if (!found) throw new ArtifactNotFound(digest);
    if (found.bytes > MAX_STORED_BYTES) {
      found.stream.destroy();
      throw new DigestMismatch(digest, `of ${found.bytes} bytes`);
    }
    const clear = await decodeChunk(await buffer(found.stream));
    const actual = digestOf(clear);
    if (actual !== digest) throw new DigestMismatch(digest, actual);
    return clear;
  }

  async missing(digests: Iterable<Digest>): Promise<ReadonlySet<Digest>> {
    const missing = new Set<Digest>();
    const look = async (digest: Digest) => {
      if (!(await this.keep(digest))) missing.add(digest);
    };
    await inParallel([...new Set(digests)], look, AT_ONCE);
    return missing;
  }

  async *list(): AsyncGenerator<Digest> {
    for await (const name of this.bucket.names(PREFIX)) {
      const digest = name.slice(PREFIX.length);
      if (isDigest(digest)) yield digest;
    }
  }

  async drop(digest: Digest): Promise<number> {
    return dropOldObject(this.bucket, nameOf(digest), this.graceMs);
  }

  private async keep(digest: Digest): Promise<boolean> {
    const kept =
      isDigest(digest) && (await keepYoungObject(this.bucket, nameOf(digest), this.graceMs));
    if (kept === 'renewed') this.renewed.add(digest);
    return kept !== false;
  }
}

const PREFIX = 'chunks/';
const nameOf = (digest: Digest): string => `${PREFIX}${digest}`;

/** As `keepYoung` of files. */
export async function keepYoungObject(
  bucket: Bucket,
  name: string,
  graceMs: number,
): Promise<'young' | 'renewed' | false> {
  const isYoung = async () => {
    const found = await bucket.find(name);
    return found && Date.now() - found.modifiedAtMs < graceMs / 2;
  };
  const young = await isYoung();
  if (young) return 'young';
  if (young === undefined || !(await bucket.renew(name))) return false;
  // Not every service counts that as a change: then it is put again, as if it were not there.
  return (await isYoung()) ? 'renewed' : false;
}

export async function dropOldObject(
  bucket: Bucket,
  name: string,
  graceMs: number,
): Promise<number> {
  const found = await bucket.find(name);
  if (!found || Date.now() - found.modifiedAtMs < graceMs) return 0;
  await bucket.remove(name);
  return Math.max(1, found.bytes);
}
