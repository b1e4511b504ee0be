import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { dropOld, keepYoung, listByDigest, syncDirectory } from './aging-files';
import { decodeChunk, encodeChunk } from './chunk-codec';
import type { ChunkStore, PutChunk } from './chunks';
import { type Digest, digestOf, isDigest } from './digest';
import type { Collectable } from './garbage';
import { ArtifactNotFound, DigestMismatch } from './port';

/** How long what nobody refers to is kept: what is being written is younger. */
export const DEFAULT_GRACE_MS = 24 * 3600_000;
const AT_ONCE = 16;

/** Pieces as files: `chunks/<2 hex>/<62 hex>`. */
export class ChunkDirectory implements ChunkStore, Collectable {
  private unsynced = new Set<string>();
  private readonly writing = new Map<Digest, Promise<number>>();

  constructor(
    private readonly root: string,
    private readonly graceMs = DEFAULT_GRACE_MS,
  ) {}

  async put(clear: Uint8Array): Promise<PutChunk> {
    const digest = digestOf(clear);
    const under = this.writing.get(digest);
    if (under) {
      await under;
      return { digest, storedBytes: 0 };
    }
    const work = this.write(digest, clear).finally(() => this.writing.delete(digest));
    this.writing.set(digest, work);
    return { digest, storedBytes: await work };
  }

  async sync(): Promise<void> {
    const directories = this.unsynced;
    this.unsynced = new Set();
    if (directories.size > 0) directories.add(join(this.root, 'chunks'));
    await inParallel([...directories], syncDirectory);
  }

  async get(digest: Digest): Promise<Buffer> {
    if (!isDigest(digest)) throw new ArtifactNotFound(digest);
    const stored = await readFile(this.pathOf(digest)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') throw new ArtifactNotFound(digest);
      throw error;
    });
    const clear = await decodeChunk(stored);
    const actual = digestOf(clear);
    if (actual !== digest) throw new DigestMismatch(digest, actual);
    return clear;
  }

  async missing(digests: Iterable<Digest>): Promise<ReadonlySet<Digest>> {
    const missing = new Set<Digest>();
    await inParallel([...new Set(digests)], async (digest) => {
      if (!(await this.keep(digest))) missing.add(digest);
    });
    return missing;
  }

  list(): AsyncGenerator<Digest> {
    return listByDigest(join(this.root, 'chunks'));
  }

  drop(digest: Digest): Promise<number> {
    return dropOld(this.pathOf(digest), join(this.root, 'incoming'), this.graceMs);
  }

  private async write(digest: Digest, clear: Uint8Array): Promise<number> {
    if (await this.keep(digest)) return 0;
    const stored = await encodeChunk(clear);
    const draft = join(this.root, 'incoming', randomUUID());
    const path = this.pathOf(digest);
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        for (const part of stored) await file.writeFile(part);
        await file.datasync();
      } finally {
        await file.close();
      }
      const directory = join(path, '..');
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await rename(draft, path);
      this.unsynced.add(directory);
    } finally {
      await rm(draft, { force: true });
    }
    return stored[0].length + stored[1].byteLength;
  }

  private async keep(digest: Digest): Promise<boolean> {
    return isDigest(digest) && keepYoung(this.pathOf(digest), this.graceMs);
  }

  private pathOf(digest: Digest): string {
    return join(this.root, 'chunks', digest.slice(0, 2), digest.slice(2));
  }
}

export async function inParallel<T>(
  items: readonly T[],
  work: (item: T) => Promise<void>,
  atOnce = AT_ONCE,
): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next < items.length) await work(items[next++] as T);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, run));
}
