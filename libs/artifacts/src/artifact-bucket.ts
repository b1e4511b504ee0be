import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Bucket, type BucketSettings } from './bucket';
import { ChunkBucket, dropOldObject, keepYoungObject } from './chunk-bucket';
import { DEFAULT_GRACE_MS } from './chunk-directory';
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

/** The store as a bucket of an S3-compatible service: `content/<digest>`, `owners/<owner>/<digest>`. */
export class ArtifactBucket implements ArtifactStore {
  readonly chunks: ChunkBucket;
  private readonly bucket: Bucket;

  constructor(
    settings: BucketSettings,
    private readonly graceMs = DEFAULT_GRACE_MS,
  ) {
    this.bucket = new Bucket(settings);
    this.chunks = new ChunkBucket(this.bucket, graceMs);
  }

  /** Received and verified on this machine first: an object's name is its digest from its first byte on. */
  async put(
    digest: Digest,
    source: AsyncIterable<Uint8Array>,
    options: PutOptions,
  ): Promise<StoredArtifact> {
    if (!isDigest(digest)) throw new ArtifactNotFound(digest);
    const directory = await mkdtemp(join(tmpdir(), 'vmux-artifact-'));
    const draft = join(directory, randomUUID());
    try {
      const bytes = await receive(draft, digest, source, options);
      const deduplicated = await this.ownedBy(options.owner, digest);
      if (!(await this.keep(digest))) await this.bucket.putFile(contentName(digest), draft, bytes);
      await this.bucket.put(grantName(options.owner, digest), Buffer.alloc(0), 0);
      return { digest, bytes, deduplicated };
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }

  async open(digest: Digest): Promise<{ bytes: number; stream: Readable }> {
    const found = isDigest(digest) ? await this.bucket.get(contentName(digest)) : undefined;
    if (!found) throw new ArtifactNotFound(digest);
    const stream = Readable.from(verified(found.stream, digest), { objectMode: false });
    return { bytes: found.bytes, stream };
  }

  async ownedBy(owner: string, digest: Digest): Promise<boolean> {
    if (!isDigest(digest) || !(await this.bucket.find(grantName(owner, digest)))) return false;
    return this.keep(digest);
  }

  async collect({ checkpoints, bundles }: LiveReferences): Promise<Collected> {
    const { bucket, graceMs } = this;
    const content = {
      async *list() {
        for await (const name of bucket.names(CONTENT))
          if (isDigest(name.slice(CONTENT.length))) yield name.slice(CONTENT.length);
      },
      drop: (digest: Digest) => dropOldObject(bucket, contentName(digest), graceMs),
    };
    return total(
      await collectChunks(this.chunks, checkpoints),
      await collectBundles(content, bundles),
    );
  }

  close(): void {
    this.bucket.close();
  }

  private async keep(digest: Digest): Promise<boolean> {
    return (await keepYoungObject(this.bucket, contentName(digest), this.graceMs)) !== false;
  }
}

const CONTENT = 'content/';
const contentName = (digest: Digest): string => `${CONTENT}${digest}`;
const grantName = (owner: string, digest: Digest): string =>
  `owners/${createHash('sha256').update(owner).digest('hex')}/${digest}`;
