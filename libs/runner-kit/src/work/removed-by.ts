import { type ChunkStore, readEntries, readRoot } from '@vmux/artifacts';

/** What of the base was gone in that checkpoint. */
export async function removedBy(
  store: ChunkStore,
  artifact: string | null,
): Promise<readonly string[]> {
  const removed: string[] = [];
  if (artifact !== null)
    for await (const { type, path } of readEntries(store, await readRoot(store, artifact))) {
      // Removals come first.
      if (type !== 'whiteout') break;
      removed.push(path);
    }
  return removed;
}
