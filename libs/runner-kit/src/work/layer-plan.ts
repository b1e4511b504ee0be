import {
  type Attribute,
  type CheckpointRoot,
  type ChunkStore,
  digestOf,
  encodeIdentity,
  type ManifestEntry,
  readEntries,
} from '@vmux/artifacts';
import { DriverRefused } from '../errors';

/** What a layer is to hold. */
export interface LayerPlan {
  /** Whether the entry is in it. */
  holds(entry: ManifestEntry): boolean;
  /** Paths beneath the layer that are not to be seen through it. */
  readonly hidden: readonly string[];
  /** Directories of which nothing beneath the layer is to be seen. */
  readonly opaque: ReadonlySet<string>;
}

const MARK = '.wh.';
const HIDES_ALL = '.wh..wh..opq';

export const hidingName = (path: string): string => {
  const at = path.lastIndexOf('/') + 1;
  return `${path.slice(0, at)}${MARK}${path.slice(at)}`;
};
export const opaqueName = (path: string): string => `${path}/${HIDES_ALL}`;

/**
 * What has to lie over the base, or over the layers of an earlier checkpoint of the same sandbox, for this
 * checkpoint's tree to be seen. What an archive cannot carry as it is (holes, access lists, names that mean
 * something else in a layer) is left out: it is put there when the layer has become a sandbox.
 */
export async function planLayer(
  store: ChunkStore,
  root: CheckpointRoot,
  before: CheckpointRoot | null,
): Promise<LayerPlan> {
  const old = before ? await treeOf(store, before) : NOTHING;
  const now = await treeOf(store, root);
  const opaque = new Set(
    [...now.removed].filter((path) => now.directories.has(path) && !old.removed.has(path)),
  );
  const changed = new Set<string>();
  const touch = (path: string) => {
    for (let at = path; at !== '' && !changed.has(at); at = above(at)) changed.add(at);
  };
  const isBeneathOpaque = (path: string) => ancestors(path).some((each) => opaque.has(each));
  for (const [path, identity] of now.entries)
    if (old.entries.get(path) !== identity || isBeneathOpaque(path)) touch(path);
  // A layer's hard links are to files in the same layer.
  for (const names of now.links.values())
    if (names.some((path) => changed.has(path))) for (const path of names) touch(path);
  const gone = new Set([
    ...[...old.entries.keys()].filter((path) => !now.entries.has(path)),
    ...[...now.removed].filter((path) => !old.removed.has(path) && !now.entries.has(path)),
  ]);
  const hidden = [...gone].filter((path) => now.directories.has(above(path)) && !isMarked(path));
  for (const path of hidden) touch(above(path));
  for (const path of changed)
    if (!now.directories.has(above(path)))
      throw new DriverRefused('unsupported', `nothing is known of the directory of /${path}`);
  return { holds: ({ path }) => changed.has(path) && now.entries.has(path), hidden, opaque };
}

interface Tree {
  /** By path, of what a layer can carry. */
  readonly entries: ReadonlyMap<string, string>;
  readonly directories: ReadonlySet<string>;
  readonly removed: ReadonlySet<string>;
  /** By the first name of a file, all of its names. */
  readonly links: ReadonlyMap<string, readonly string[]>;
}
const NOTHING: Tree = {
  entries: new Map(),
  directories: new Set(),
  removed: new Set(),
  links: new Map(),
};

async function treeOf(store: ChunkStore, root: CheckpointRoot): Promise<Tree> {
  const entries = new Map<string, string>();
  const directories = new Set(['']);
  const removed = new Set<string>();
  const links = new Map<string, string[]>();
  for await (const entry of readEntries(store, root)) {
    const { type, path, target } = entry;
    if (type === 'whiteout') removed.add(path);
    if (type === 'whiteout' || path === '' || !isCarried(entry)) continue;
    if (type === 'hardlink') {
      if (!entries.has(target)) continue;
      links.set(target, [...(links.get(target) ?? [target]), path]);
    }
    if (type === 'directory') directories.add(path);
    entries.set(path, digestOf(encodeIdentity(entry)));
  }
  return { entries, directories, removed, links };
}

/** Of a directory the layer carries what it can; the rest is said of it afterwards, which costs nothing. */
function isCarried({ type, path, content, size, attributes }: ManifestEntry): boolean {
  if (isMarked(path)) return false;
  if (type !== 'directory' && !attributes.every(isCarriedAttribute)) return false;
  if (!content) return true;
  return content.extents.reduce((sum, { length }) => sum + length, 0) === size;
}

export const isCarriedAttribute = ({ name }: Attribute): boolean =>
  (name.startsWith('user.') || name === 'security.capability') &&
  /^[\x21-\x3c\x3e-\x7e]+$/.test(name);

const isMarked = (path: string): boolean => path.split('/').some((part) => part.startsWith(MARK));
const above = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')));
const ancestors = (path: string): string[] => {
  const all: string[] = [];
  for (let at = above(path); at !== ''; at = above(at)) all.push(at);
  return all;
};
