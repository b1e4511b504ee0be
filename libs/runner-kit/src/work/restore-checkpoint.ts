import { createHash } from 'node:crypto';
import {
  type CheckpointRoot,
  type ChunkStore,
  encodeHead,
  encodeIdentity,
  type FileContent,
  type ManifestEntry,
  ManifestRefused,
  readEntries,
  readRoot,
} from '@vmux/artifacts';
import type { Base, Checkpoint } from '@vmux/events';
import { DriverRefused } from '../errors';
import type { SupervisorClient } from '../supervisor-client';
import type { ScannedEntry } from '../supervisor-tree-answers';
import type { FileIndex } from './checkpoint-index';
import { scanTree } from './checkpoint-tree';
import { scanRoom } from './scan-room';
import { manifestEntry } from './take-checkpoint';
import { type MadeOf, unlike } from './unlike';
import { unpackStream } from './unpack-stream';

export interface RestoreSettings {
  readonly client: SupervisorClient;
  readonly store: ChunkStore;
  readonly index: FileIndex;
  /** What the sandbox was made of. */
  readonly base: Base;
  readonly allowBaseChange: boolean;
  /** The sandbox was made of the checkpoint: only what is not as it was is put there. */
  readonly present?: MadeOf | undefined;
  readonly signal: AbortSignal;
}

/**
 * Puts a checkpoint's files into a sandbox in which nothing has run, looks at what came of it, and says the
 * digest of that. Done again from the start it comes to the same.
 */
export async function restoreCheckpoint(
  checkpoint: Checkpoint,
  settings: RestoreSettings,
): Promise<string> {
  const { client, store, signal } = settings;
  if (checkpoint.artifact === null)
    throw new DriverRefused('unsupported', 'the checkpoint has no portable form');
  if (!settings.allowBaseChange) refuseOtherBase(checkpoint.base, settings.base);
  const root = await readRoot(store, checkpoint.artifact);
  if (root.treeDigest !== checkpoint.manifestDigest)
    throw new ManifestRefused('it is of another tree than the history says');
  const wanted = settings.present
    ? await unlike(root, client, store, { made: settings.present, signal })
    : undefined;
  await client.trees.unpack(unpackStream(store, root, wanted), { signal });
  const look = (maxScanBytes: number) => digestFound(root, maxScanBytes, settings);
  const { digest, contents } = await scanRoom.run(look, signal);
  settings.index.rememberPieces(contents, new Set([...root.manifest, checkpoint.artifact]));
  return digest;
}

function refuseOtherBase(taken: Base, here: Base): void {
  for (const part of ['architecture', 'distribution', 'digest'] as const) {
    const [then, now] = [taken[part], here[part]];
    if (then === null || now === null || then === now) continue;
    throw new DriverRefused(
      'unsupported',
      `the checkpoint was taken over another base (${part} ${then}, here ${now}): allow the change of base if that is meant`,
    );
  }
}

/** The tree's digest as the sandbox shows it: every entry of the manifest is looked for and described anew. */
async function digestFound(
  root: CheckpointRoot,
  maxScanBytes: number,
  { client, store, index, signal }: RestoreSettings,
): Promise<{ readonly digest: string; readonly contents: readonly FileContent[] }> {
  const contents: FileContent[] = [];
  const { entries, scannedAtNs } = await scanTree(client, maxScanBytes, signal);
  const found = new Map(entries.map((entry) => [entry.path, entry]));
  const hash = createHash('sha256');
  for await (const entry of readEntries(store, root)) {
    const described = describe(entry, found);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(described.length);
    hash.update(length).update(described);
    const seen = found.get(entry.path);
    if (entry.content) contents.push(entry.content);
    if (entry.type === 'file' && seen && entry.content)
      index.remember(seen, entry.content, scannedAtNs);
  }
  return { digest: hash.digest('hex'), contents };
}

function describe(entry: ManifestEntry, found: ReadonlyMap<string, ScannedEntry>): Buffer {
  if (entry.type === 'whiteout') return encodeIdentity(entry);
  const seen = found.get(entry.path);
  if (!seen) throw differs(entry, 'is missing');
  if (entry.type === 'hardlink') {
    if (found.get(entry.target)?.identity !== seen.identity) throw differs(entry, 'stands alone');
    return encodeIdentity(entry);
  }
  const here = manifestEntry(seen, entry.content);
  if (!encodeHead(here).equals(encodeHead(entry))) throw differs(entry, difference(entry, here));
  return encodeIdentity(here);
}

function difference(wanted: ManifestEntry, here: ManifestEntry): string {
  const parts = ['type', 'mode', 'uid', 'gid', 'size', 'modifiedAtNs', 'target'] as const;
  const part = parts.find((name) => wanted[name] !== here[name]);
  return part ? `has ${part} ${here[part]}, not ${wanted[part]}` : 'has other attributes';
}

const differs = ({ path }: ManifestEntry, how: string): ManifestRefused =>
  new ManifestRefused(`after the restore /${path.slice(0, 200)} ${how}`);
