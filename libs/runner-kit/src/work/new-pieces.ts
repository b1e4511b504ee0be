import type { ChunkStore, PutChunk } from '@vmux/artifacts';

/**
 * Counts what of a checkpoint is new to its session. Whether the store has a piece already is not counted:
 * somebody else may have put it there, and nobody is told what others have.
 */
export class NewPieces implements ChunkStore {
  /** Clear bytes of the pieces that the session did not have. */
  newBytes = 0;
  private readonly given = new Set<string>();

  constructor(
    private readonly store: ChunkStore,
    private readonly known: ReadonlySet<string>,
  ) {}

  get pieces(): ReadonlySet<string> {
    return this.given;
  }

  async put(clear: Uint8Array): Promise<PutChunk> {
    const { length } = clear;
    const { digest } = await this.store.put(clear);
    const isNew = !this.known.has(digest) && !this.given.has(digest);
    this.given.add(digest);
    const storedBytes = isNew ? length : 0;
    this.newBytes += storedBytes;
    return { digest, storedBytes };
  }

  sync(): Promise<void> {
    return this.store.sync();
  }

  get(digest: string): Promise<Buffer> {
    return this.store.get(digest);
  }

  missing(digests: Iterable<string>): Promise<ReadonlySet<string>> {
    return this.store.missing(digests);
  }
}
