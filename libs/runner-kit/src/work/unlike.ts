import {
  type CheckpointRoot,
  type ChunkStore,
  encodeHead,
  type ManifestEntry,
  readEntries,
} from '@vmux/artifacts';
import type { SupervisorClient } from '../supervisor-client';
import type { ScannedEntry } from '../supervisor-tree-answers';
import { scanTree } from './checkpoint-tree';
import { scanRoom } from './scan-room';
import { manifestEntry } from './take-checkpoint';

/**
 * Of a sandbox that was made of the checkpoint: which entries are missing or otherwise than they were, and
 * the directories that those are in.
 */
export function unlike(
  root: CheckpointRoot,
  client: SupervisorClient,
  store: ChunkStore,
  signal: AbortSignal,
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
    for await (const entry of readEntries(store, root)) {
      const { type, path, target } = entry;
      if (type === 'whiteout') continue;
      if (type === 'hardlink') names.set(target, [...(names.get(target) ?? [target]), path]);
      if (!isAsItWas(entry, found)) want(path);
    }
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
