import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { dropOld, keepYoung, listByDigest, statusOf, syncDirectory } from './aging-files';
import { ChunkDirectory, DEFAULT_GRACE_MS } from './chunk-directory';
import { type Digest, isDigest } from './digest';
import {
  type Collected,
  collectBundles,
  collectChunks,
  type LiveReferences,
  total,
} from './garbage';
import { ArtifactNotFound, type ArtifactStore, type PutOptions, type StoredArtifact } from './port';
import { receive, verified } from './verified-content';

/** The store as a directory: `content/<2 hex>/<62 hex>`, and an empty file per owner and digest. */
export class ArtifactDirectory implements ArtifactStore {
  readonly chunks: ChunkDirectory;

  private constructor(
    private readonly root: string,
    private readonly graceMs: number,
  ) {
    this.chunks = new ChunkDirectory(root, graceMs);
  }

  static async at(root: string, graceMs = DEFAULT_GRACE_MS): Promise<ArtifactDirectory> {
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
      const deduplicated = await this.ownedBy(options.owner, digest);
      if (!(await keepYoung(target, this.graceMs))) await publish(draft, target);
      await this.grant(options.owner, digest);
      return { digest, bytes, deduplicated };
    } finally {
      await rm(draft, { force: true });
    }
  }

  async open(digest: Digest): Promise<{ bytes: number; stream: Readable }> {
    assertDigest(digest);
    const path = this.contentPath(digest);
    const found = await statusOf(path);
    if (!found) throw new ArtifactNotFound(digest);
    return {
      bytes: found.size,
      stream: Readable.from(verified(createReadStream(path), digest), { objectMode: false }),
    };
  }

  async ownedBy(owner: string, digest: Digest): Promise<boolean> {
    if (!isDigest(digest) || !(await statusOf(this.grantPath(owner, digest)))) return false;
    return keepYoung(this.contentPath(digest), this.graceMs);
  }

  async collect({ checkpoints, bundles }: LiveReferences): Promise<Collected> {
    const content = {
      list: () => listByDigest(join(this.root, 'content')),
      drop: (digest: Digest) =>
        dropOld(this.contentPath(digest), join(this.root, 'incoming'), this.graceMs),
    };
    return total(
      await collectChunks(this.chunks, checkpoints),
      await collectBundles(content, bundles),
    );
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

async function publish(draft: string, target: string): Promise<void> {
  await mkdir(dirname(target), { recursive: true, mode: 0o700 });
  await rename(draft, target);
  await syncDirectory(dirname(target));
  await syncDirectory(dirname(dirname(target)));
}

function assertDigest(digest: string): void {
  if (!isDigest(digest)) throw new ArtifactNotFound(digest);
}
