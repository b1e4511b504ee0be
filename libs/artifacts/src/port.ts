import type { Readable } from 'node:stream';
import type { ChunkStore } from './chunks';
import type { Digest } from './digest';
import type { Collected, LiveReferences } from './garbage';

/** Content that is named by its digest: written once, never changed, verified on the way in and out. */
export interface ArtifactStore {
  /**
   * Stores what the source yields, durably, if it has that digest and at most `maxBytes`; otherwise throws
   * and stores nothing. Content that is there already is checked against the source all the same: an owner
   * is granted only what it has shown to possess.
   */
  put(
    digest: Digest,
    source: AsyncIterable<Uint8Array>,
    options: PutOptions,
  ): Promise<StoredArtifact>;

  /** Throws `ArtifactNotFound`. The stream fails at its end when the content no longer has its digest. */
  open(digest: Digest): Promise<{ readonly bytes: number; readonly stream: Readable }>;

  /** Whether the owner has put this content: to know a digest is no right to what it names. */
  ownedBy(owner: string, digest: Digest): Promise<boolean>;

  /** What checkpoints are made of. Runners alone reach it, with digests that the history names. */
  readonly chunks: ChunkStore;

  /**
   * Removes what nothing live refers to and nobody has put or asked for within the grace period: what is
   * being written, or was just promised to somebody, is younger.
   */
  collect(live: LiveReferences): Promise<Collected>;
}

export interface PutOptions {
  readonly owner: string;
  readonly maxBytes: number;
  readonly signal?: AbortSignal;
}

export interface StoredArtifact {
  readonly digest: Digest;
  readonly bytes: number;
  /** This owner had it before; nobody is told what others have. */
  readonly deduplicated: boolean;
}

export class ArtifactNotFound extends Error {
  readonly code = 'artifact_not_found';
  constructor(readonly digest: string) {
    super(`no artifact ${digest}: upload it first`);
    this.name = 'ArtifactNotFound';
  }
}

export class DigestMismatch extends Error {
  readonly code = 'digest_mismatch';
  constructor(
    readonly expected: string,
    readonly actual: string,
  ) {
    super(`the content has digest ${actual}, not ${expected}: it was changed or cut on the way`);
    this.name = 'DigestMismatch';
  }
}

export class ArtifactTooLarge extends Error {
  readonly code = 'artifact_too_large';
  constructor(readonly maxBytes: number) {
    super(`the content is larger than ${maxBytes} bytes: leave something out`);
    this.name = 'ArtifactTooLarge';
  }
}
