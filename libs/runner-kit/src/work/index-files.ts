import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { FileContent } from '@vmux/artifacts';
import type { FileIndex, KnownFile } from './checkpoint-index';

/** More than that is read once more after a restart. */
const MAX_KEPT_FILES = 200_000;
const MAX_KEPT_BYTES = 256 * 1024 * 1024;
const MAX_INDEXES = 64;
const WRITTEN_AT_ONCE = 1024 * 1024;
const VERSION = 'vmux-file-index 1';

/**
 * What was in the files of sandboxes, across restarts of the runner. A cache: what is missing, damaged or
 * of another version is as if it had never been. Its last line is the digest of all before it: an entry
 * that was changed on the disk would put other bytes into a checkpoint.
 */
export class IndexFiles {
  constructor(private readonly directory: string) {}

  async load(key: string, into: FileIndex): Promise<void> {
    const path = this.pathOf(key);
    const found = await stat(path).catch(absent);
    if (!found || found.size > MAX_KEPT_BYTES) return;
    const lines = (await readFile(path, 'utf8')).split('\n');
    const digest = lines.pop();
    const hash = createHash('sha256');
    for (const line of lines) hash.update(line).update('\n');
    if (lines.shift() !== VERSION || digest !== hash.digest('hex')) return;
    into.keepPieces(JSON.parse(lines.shift() ?? '[]'));
    for (const line of lines) into.put(...fileOf(JSON.parse(line)));
  }

  async save(key: string, index: FileIndex): Promise<void> {
    if (index.size > MAX_KEPT_FILES) return this.forget(key);
    await mkdir(this.directory, { recursive: true, mode: 0o700 });
    const draft = join(this.directory, `${randomUUID()}~`);
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        for (const part of partsOf(index)) await file.writeFile(part);
      } finally {
        await file.close();
      }
      await rename(draft, this.pathOf(key));
    } finally {
      await rm(draft, { force: true });
    }
    await this.prune();
  }

  async forget(key: string): Promise<void> {
    await rm(this.pathOf(key), { force: true });
  }

  /** The oldest are of sandboxes that are no more, or whose last checkpoint is long ago. */
  private async prune(): Promise<void> {
    const names = await readdir(this.directory);
    if (names.length <= MAX_INDEXES) return;
    const aged = await Promise.all(
      names.map(async (name) => {
        const path = join(this.directory, name);
        return { path, at: (await stat(path).catch(absent))?.mtimeMs ?? 0 };
      }),
    );
    aged.sort((one, other) => one.at - other.at);
    for (const { path } of aged.slice(0, names.length - MAX_INDEXES))
      await rm(path, { force: true });
  }

  private pathOf(key: string): string {
    return join(this.directory, createHash('sha256').update(key).digest('hex'));
  }
}

function* partsOf(index: FileIndex): Generator<string> {
  const hash = createHash('sha256');
  let part = `${VERSION}\n${JSON.stringify([...index.pieces()])}\n`;
  for (const [path, file] of index.files()) {
    part += `${JSON.stringify(lineOf(path, file))}\n`;
    if (part.length < WRITTEN_AT_ONCE) continue;
    hash.update(part);
    yield part;
    part = '';
  }
  hash.update(part);
  yield part + hash.digest('hex');
}

type Line = readonly [
  path: string,
  size: number,
  modifiedAtNs: string,
  changedAtNs: string,
  identity: string,
  digest: string,
  extents: readonly (readonly [number, number])[],
  segments: readonly (readonly [string, number, number])[],
];

const lineOf = (path: string, file: KnownFile): Line => [
  ...([path, file.size, String(file.modifiedAtNs), String(file.changedAtNs)] as const),
  file.identity,
  file.content.digest,
  file.content.extents.map(({ offset, length }) => [offset, length] as const),
  file.content.segments.map(({ chunk, offset, length }) => [chunk, offset, length] as const),
];

function fileOf(line: Line): [path: string, file: KnownFile] {
  const [path, size, modified, changed, identity, digest, extents, segments] = line;
  const content: FileContent = {
    digest,
    extents: extents.map(([offset, length]) => ({ offset, length })),
    segments: segments.map(([chunk, offset, length]) => ({ chunk, offset, length })),
  };
  const [modifiedAtNs, changedAtNs] = [BigInt(modified), BigInt(changed)];
  return [path, { size, modifiedAtNs, changedAtNs, identity, content }];
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
