import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { ChunkDirectory, syncDirectory } from './chunk-directory';
import { type Digest, isDigest } from './digest';
import {
  ArtifactNotFound,
  type ArtifactStore,
  ArtifactTooLarge,
  DigestMismatch,
  type PutOptions,
  type StoredArtifact,
} from './port';

/** The store as a directory: `content/<2 hex>/<62 hex>`, and an empty file per owner and digest. */
export class ArtifactDirectory implements ArtifactStore {
  readonly chunks: ChunkDirectory;

  private constructor(
    private readonly root: string,
    graceMs?: number,
  ) {
    this.chunks = new ChunkDirectory(root, graceMs);
  }

  static async at(root: string, graceMs?: number): Promise<ArtifactDirectory> {
    for (const part of ['content', 'owners', 'incoming', 'chunks']) {
      await mkdir(join(root, part), { recursive: true, mode: 0o700 });
    }
    await dropAbandoned(join(root, 'incoming'));
    return new ArtifactDirectory(root, graceMs);
  }

  async put(
    digest: Digest,
    source: AsyncIterable<Uint8Array>,
    options: PutOptions,
  ): Promise<StoredArtifact> {
    assertDigest(digest);
    const draft = join(this.root, 'incoming', randomUUID());
    try {
      const bytes = await receive(draft, digest, source, options);
      const target = this.contentPath(digest);
      const deduplicated = (await sizeOf(target)) !== undefined;
      if (!deduplicated) await publish(draft, target);
      await this.grant(options.owner, digest);
      return { digest, bytes, deduplicated };
    } finally {
      await rm(draft, { force: true });
    }
  }

  async open(digest: Digest): Promise<{ bytes: number; stream: Readable }> {
    assertDigest(digest);
    const path = this.contentPath(digest);
    const bytes = await sizeOf(path);
    if (bytes === undefined) throw new ArtifactNotFound(digest);
    return {
      bytes,
      stream: Readable.from(verified(createReadStream(path), digest), { objectMode: false }),
    };
  }

  async ownedBy(owner: string, digest: Digest): Promise<boolean> {
    return isDigest(digest) && (await sizeOf(this.grantPath(owner, digest))) !== undefined;
  }

  private async grant(owner: string, digest: Digest): Promise<void> {
    const path = this.grantPath(owner, digest);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await (await open(path, 'w', 0o600)).close();
    await syncDirectory(dirname(path));
  }

  private contentPath(digest: Digest): string {
    return join(this.root, 'content', digest.slice(0, 2), digest.slice(2));
  }

  private grantPath(owner: string, digest: Digest): string {
    // An owner's name is not ours and is no path: its digest is.
    return join(this.root, 'owners', createHash('sha256').update(owner).digest('hex'), digest);
  }
}

const abandonedAfterMs = 24 * 3600_000;

/** Several processes share the directory: only what none of them has touched for a day is nobody's. */
async function dropAbandoned(incoming: string): Promise<void> {
  for (const name of await readdir(incoming)) {
    const path = join(incoming, name);
    const { mtimeMs } = await stat(path);
    if (Date.now() - mtimeMs > abandonedAfterMs) await rm(path, { force: true });
  }
}

async function receive(
  path: string,
  digest: Digest,
  source: AsyncIterable<Uint8Array>,
  { maxBytes, signal }: PutOptions,
): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  try {
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of source) {
      signal?.throwIfAborted();
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new ArtifactTooLarge(maxBytes);
      hash.update(chunk);
      await writeAll(file, chunk);
    }
    const actual = hash.digest('hex');
    if (actual !== digest) throw new DigestMismatch(digest, actual);
    await file.sync();
    return bytes;
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let written = 0; written < chunk.byteLength; ) {
    written += (await file.write(chunk, written)).bytesWritten;
  }
}

async function publish(draft: string, target: string): Promise<void> {
  await mkdir(dirname(target), { recursive: true, mode: 0o700 });
  await rename(draft, target);
  await syncDirectory(dirname(target));
  await syncDirectory(dirname(dirname(target)));
}

async function* verified(source: AsyncIterable<Buffer>, digest: Digest): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  for await (const chunk of source) {
    hash.update(chunk);
    yield chunk;
  }
  const actual = hash.digest('hex');
  if (actual !== digest) throw new DigestMismatch(digest, actual);
}

async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function assertDigest(digest: string): void {
  if (!isDigest(digest)) throw new ArtifactNotFound(digest);
}
