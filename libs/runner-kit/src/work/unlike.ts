import {
  type CheckpointRoot,
  type ChunkStore,
  encodeHead,
  type ManifestEntry,
  readEntries,
} from '@vmux/artifacts';
import { SnapshotUnusable } from '../errors';
import type { SupervisorClient } from '../supervisor-client';
import type { ScannedEntry } from '../supervisor-tree-answers';
import { scanTree } from './checkpoint-tree';
import { scanRoom } from './scan-room';
import { manifestEntry } from './take-checkpoint';

/** How a sandbox came to have a checkpoint's files. */
export type MadeOf = 'of its files' | 'by its provider';

/**
 * Of a sandbox that was made of the checkpoint: which entries are missing or otherwise than they were, and
 * the directories that those are in. Throws `SnapshotUnusable` for files that are not the checkpoint's, if
 * nobody else has made sure that there are none.
 */
export function unlike(
  root: CheckpointRoot,
  client: SupervisorClient,
  store: ChunkStore,
  { made, signal }: { readonly made: MadeOf; readonly signal: AbortSignal },
): Promise<(entry: ManifestEntry) => boolean> {
  return scanRoom.run(async (maxScanBytes) => {
    const { entries } = await scanTree(client, maxScanBytes, signal);
    const found = new Map(entries.map((entry) => [entry.path, entry]));
    const wanted = new Set<string>();
    const want = (path: string) => {
      for (let at = path; !wanted.has(at); at = at.slice(0, Math.max(0, at.lastIndexOf('/'))))
        wanted.add(at);
    };
    const names = new Map<string, string[]>();
    const strange = new Map(found);
    for await (const entry of readEntries(store, root)) {
      const { type, path, target } = entry;
      if (type === 'whiteout') continue;
      strange.delete(path);
      if (type === 'hardlink') names.set(target, [...(names.get(target) ?? [target]), path]);
      if (!isAsItWas(entry, found)) want(path);
    }
    // The workspace is there before anything is restored.
    for (const { type, path } of made === 'by its provider' ? strange.values() : [])
      if (type !== 'directory')
        throw new SnapshotUnusable(`the provider’s snapshot also has /${path.slice(0, 200)}`);
    // A file that is made anew has its other names no more.
    for (const all of names.values())
      if (all.some((path) => wanted.has(path))) for (const path of all) want(path);
    return ({ type, path }) => type !== 'whiteout' && wanted.has(path);
  }, signal);
}

function isAsItWas(entry: ManifestEntry, found: ReadonlyMap<string, ScannedEntry>): boolean {
  const seen = found.get(entry.path);
  if (!seen) return false;
  if (entry.type === 'hardlink') return found.get(entry.target)?.identity === seen.identity;
  return encodeHead(manifestEntry(seen, undefined)).equals(encodeHead(entry));
}
