import { piecesOf } from './checkpoint-archive';
import type { ChunkStore } from './chunks';
import type { Digest } from './digest';

/** What is kept by digest and may be dropped when nobody refers to it. */
export interface Collectable {
  list(): AsyncIterable<Digest>;
  /** Removes what has been neither put nor kept for a whole grace period; says how many bytes. */
  drop(digest: Digest): Promise<number>;
}

export interface LiveReferences {
  /** The artifacts of every checkpoint that a session, or a fork of one, may still be restored from. */
  readonly checkpoints: Iterable<Digest> | AsyncIterable<Digest>;
  /** The bundles of every session that may still be started. */
  readonly bundles: Iterable<Digest> | AsyncIterable<Digest>;
}

export interface Collected {
  readonly kept: number;
  readonly dropped: number;
  readonly droppedBytes: number;
}

export const total = (...parts: readonly Collected[]): Collected =>
  parts.reduce((all, part) => ({
    kept: all.kept + part.kept,
    dropped: all.dropped + part.dropped,
    droppedBytes: all.droppedBytes + part.droppedBytes,
  }));

/**
 * Drops pieces that no live checkpoint needs and that are older than the grace period. A live checkpoint
 * that cannot be read stops it before anything is dropped: what it needs is not known then.
 */
export async function collectChunks(
  store: ChunkStore & Collectable,
  checkpoints: LiveReferences['checkpoints'],
): Promise<Collected> {
  const live = new Set<Digest>();
  for await (const artifact of checkpoints)
    for await (const piece of piecesOf(store, artifact)) live.add(piece);
  return sweep(store, live);
}

export async function collectBundles(
  store: Collectable,
  bundles: LiveReferences['bundles'],
): Promise<Collected> {
  const live = new Set<Digest>();
  for await (const bundle of bundles) live.add(bundle);
  return sweep(store, live);
}

async function sweep(store: Collectable, live: ReadonlySet<Digest>): Promise<Collected> {
  let [kept, dropped, droppedBytes] = [0, 0, 0];
  for await (const digest of store.list()) {
    const bytes = live.has(digest) ? 0 : await store.drop(digest);
    droppedBytes += bytes;
    if (bytes > 0) dropped += 1;
    else kept += 1;
  }
  return { kept, dropped, droppedBytes };
}
