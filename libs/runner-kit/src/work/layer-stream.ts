import { createHash } from 'node:crypto';
import {
  type CheckpointRoot,
  type ChunkStore,
  type ManifestEntry,
  ManifestRefused,
  readEntries,
  readRoot,
} from '@vmux/artifacts';
import type { CheckpointFiles, Layer } from '../driver';
import {
  hidingName,
  isCarriedAttribute,
  type LayerPlan,
  opaqueName,
  planLayer,
} from './layer-plan';
import { type LayerItem, plainFile, TAR_END, tarHeader, tarPadding } from './layer-tar';
import { lookingAhead, stepsOf } from './unpack-stream';

/** A portable checkpoint's files as layers of an image. */
export function checkpointFiles(store: ChunkStore, artifact: string): CheckpointFiles {
  return {
    artifact,
    over: async (before) => {
      const root = await readRoot(store, artifact);
      const plan = await planLayer(
        store,
        root,
        before === null ? null : await readRoot(store, before),
      );
      return layerOf(store, root, plan);
    },
  };
}

async function layerOf(store: ChunkStore, root: CheckpointRoot, plan: LayerPlan): Promise<Layer> {
  // An archive within an archive says how long it is before it begins.
  let bytes = TAR_END.length;
  const links = new Links();
  for await (const entry of held(store, root, plan)) {
    const item = links.itemOf(entry);
    bytes += tarHeader(item).length + item.size + tarPadding(item.size).length;
    if (plan.opaque.has(entry.path)) bytes += markOf(opaqueName(entry.path)).length;
  }
  for (const path of plan.hidden) bytes += markOf(hidingName(path)).length;
  return { bytes, stream: partsOf(store, root, plan) };
}

async function* partsOf(
  store: ChunkStore,
  root: CheckpointRoot,
  plan: LayerPlan,
): AsyncGenerator<Buffer> {
  const links = new Links();
  let hash = createHash('sha256');
  let file: ManifestEntry | undefined;
  for await (const step of lookingAhead(stepsOf(store, held(store, root, plan)))) {
    if (step.kind === 'entry') {
      file = step.entry;
      hash = createHash('sha256');
      yield tarHeader(links.itemOf(file));
      if (plan.opaque.has(file.path)) yield markOf(opaqueName(file.path));
    } else if (step.kind === 'bytes') {
      const { offset, length } = step.segment;
      const piece = (await step.piece).subarray(offset, offset + length);
      if (piece.length !== length) throw new ManifestRefused('bytes beyond a piece’s end');
      hash.update(piece);
      yield piece;
    } else {
      if (hash.digest('hex') !== file?.content?.digest)
        throw new ManifestRefused('a file is not the one that was stored');
      yield tarPadding(file.size);
    }
  }
  for (const path of plan.hidden) yield markOf(hidingName(path));
  yield TAR_END;
}

async function* held(
  store: ChunkStore,
  root: CheckpointRoot,
  plan: LayerPlan,
): AsyncGenerator<ManifestEntry> {
  for await (const entry of readEntries(store, root))
    if (entry.type !== 'whiteout' && plan.holds(entry)) yield entry;
}

const markOf = (path: string): Buffer => tarHeader(plainFile(path, 0));

/** What is said of a second name is done to the file: it is the same that was said with the first. */
class Links {
  private readonly files = new Map<string, LayerItem>();

  itemOf(entry: ManifestEntry): LayerItem {
    const { type, path, target } = entry;
    if (type === 'whiteout') throw new ManifestRefused('a removal in the tree');
    if (type === 'hardlink') {
      const first = this.files.get(target);
      if (!first) throw new ManifestRefused('a hard link to nothing');
      return { ...first, type, path, target, size: 0 };
    }
    const attributes = entry.attributes.filter(isCarriedAttribute);
    const item = { ...entry, type, attributes, size: type === 'file' ? entry.size : 0 };
    if (type === 'file') this.files.set(path, item);
    return item;
  }
}
