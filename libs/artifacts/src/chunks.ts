import type { Digest } from './digest';

/** The largest piece of content that is stored by itself. */
export const MAX_CHUNK_BYTES = 2 * 1024 * 1024;

/**
 * Pieces of content, each named by the SHA-256 of its clear bytes, kept compressed, written once and never
 * changed. What is there already is not stored again, whoever put it.
 */
export interface ChunkStore {
  /** Stores a piece if it is not there. What it promises it promises after `sync`. */
  put(clear: Uint8Array): Promise<PutChunk>;

  /** Returns when everything put before is durable. */
  sync(): Promise<void>;

  /** The clear bytes, verified. Throws `ArtifactNotFound` or `DigestMismatch`. */
  get(digest: Digest): Promise<Buffer>;

  /** Those that are not there. The others stay for at least half a grace period of the collection. */
  missing(digests: Iterable<Digest>): Promise<ReadonlySet<Digest>>;
}

export interface PutChunk {
  readonly digest: Digest;
  /** What was written; 0 for a piece that was there. */
  readonly storedBytes: number;
}
