import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { decodeChunk, encodeChunk } from './chunk-codec';
import type { ChunkStore, PutChunk } from './chunks';
import { type Digest, digestOf, isDigest } from './digest';
import { ArtifactNotFound, DigestMismatch } from './port';

/** How long what nobody refers to is kept: what is being written is younger. */
export const DEFAULT_GRACE_MS = 24 * 3600_000;
const AT_ONCE = 16;

/** Pieces as files: `chunks/<2 hex>/<62 hex>`. */
export class ChunkDirectory implements ChunkStore {
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

  /** Every piece with its age, for the collection. */
  async *list(): AsyncGenerator<Digest> {
    const top = join(this.root, 'chunks');
    for (const first of await readdir(top))
      for (const rest of await readdir(join(top, first)))
        if (isDigest(first + rest)) yield first + rest;
  }

  /**
   * Removes a piece that nobody has put or kept for a whole grace period. It is moved aside first and looked
   * at again there: one that was kept in between comes back.
   */
  async drop(digest: Digest, now: number): Promise<number> {
    const path = this.pathOf(digest);
    const before = await statusOf(path);
    if (!before || now - before.mtimeMs < this.graceMs) return 0;
    const aside = join(this.root, 'incoming', randomUUID());
    await rename(path, aside);
    const { mtimeMs, size } = await stat(aside);
    if (now - mtimeMs < this.graceMs) {
      await rename(aside, path);
      return 0;
    }
    await rm(aside, { force: true });
    return size;
  }

  private async write(digest: Digest, clear: Uint8Array): Promise<number> {
    if (await this.keep(digest)) return 0;
    const stored = await encodeChunk(clear);
    const draft = join(this.root, 'incoming', randomUUID());
    const path = this.pathOf(digest);
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        await file.writeFile(stored);
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
    return stored.length;
  }

  /** Whether it is there; if it is getting old it becomes young again, so that it is not collected now. */
  private async keep(digest: Digest): Promise<boolean> {
    if (!isDigest(digest)) return false;
    const path = this.pathOf(digest);
    const found = await statusOf(path);
    if (!found || found.size === 0) return false;
    if (Date.now() - found.mtimeMs < this.graceMs / 2) return true;
    try {
      await utimes(path, new Date(), new Date());
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  }

  private pathOf(digest: Digest): string {
    return join(this.root, 'chunks', digest.slice(0, 2), digest.slice(2));
  }
}

async function statusOf(path: string) {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
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
