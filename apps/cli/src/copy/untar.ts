import {
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  rmSync,
  symlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { Failure } from '../failure';
import { visible } from '../terminal/escape';
import { type TarEntry, tarEntries } from './tar-reader';

export interface UnpackLimits {
  readonly maxEntries: number;
  readonly maxBytes: number;
}

export const defaultLimits: UnpackLimits = { maxEntries: 200_000, maxBytes: 10 * 1024 ** 3 };

const unsafe = (path: string, why: string) =>
  new Failure(
    `the session sent an entry that is not safe to unpack: "${visible(path)}" ${why}`,
    'nothing more of it was unpacked',
  );

/**
 * Unpacks what a session sent, which may be made to do harm: everything stays beneath the directory,
 * nothing is written through a link, no link leads out, no special file or setuid bit is made.
 */
export async function unpack(
  source: AsyncIterable<Uint8Array>,
  directory: string,
  limits: UnpackLimits = defaultLimits,
): Promise<{ entries: number; bytes: number }> {
  const done = { entries: 0, bytes: 0 };
  const links: { readonly parts: readonly string[]; readonly target: string }[] = [];
  mkdirSync(directory, { recursive: true });
  for await (const { entry, content } of tarEntries(source)) {
    done.entries += 1;
    done.bytes += entry.bytes;
    if (done.entries > limits.maxEntries || done.bytes > limits.maxBytes)
      throw new Failure(
        `there is more than ${limits.maxEntries} entries or ${Math.floor(limits.maxBytes / 1024 ** 2)} MiB to unpack`,
        'copy a smaller directory, or allow more with --max-size',
      );
    const parts = partsOf(entry);
    const last = parts.at(-1);
    if (last === undefined) {
      if (entry.kind !== 'directory') throw unsafe(entry.path, 'names the directory itself');
      continue;
    }
    const parent = realDirectory(directory, parts.slice(0, -1), entry.path);
    const full = join(parent, last);
    if (entry.kind === 'directory') {
      realDirectory(directory, parts, entry.path);
      chmodSync(full, (entry.mode & 0o777) | 0o700);
    } else if (entry.kind === 'file') {
      removeOld(full, entry.path);
      await writeNew(full, entry.mode & 0o777, content());
    } else if (entry.kind === 'link') {
      checkTarget(entry, parts.length - 1);
      removeOld(full, entry.path);
      links.push({ parts, target: entry.target });
    } else throw unsafe(entry.path, 'is neither a file, a directory nor a symbolic link');
  }
  // Links come last: until then there is none that a later entry could be written through.
  for (const { parts, target } of links) {
    const path = parts.join('/');
    const full = join(realDirectory(directory, parts.slice(0, -1), path), parts.at(-1) ?? '');
    removeOld(full, path);
    symlinkSync(target, full);
  }
  return done;
}

function partsOf({ path }: TarEntry): readonly string[] {
  if (path.startsWith('/')) throw unsafe(path, 'is absolute');
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) throw unsafe(path, 'leads out of the directory');
  if (path.includes('\0')) throw unsafe(path, 'has no proper name');
  return parts;
}

/**
 * Upwards first and then only down: such a target stays beneath the directory whatever other links it
 * passes, since those do too.
 */
function checkTarget({ path, target }: TarEntry, depth: number): void {
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const up = parts.findIndex((part) => part !== '..');
  const ups = up < 0 ? parts.length : up;
  if (target === '' || target.startsWith('/') || target.includes('\0'))
    throw unsafe(path, `links to "${visible(target)}", outside of the directory`);
  if (ups > depth || parts.slice(ups).includes('..'))
    throw unsafe(path, `links to "${visible(target)}", which may lead out of the directory`);
}

/** Made where it is missing; never entered through a link. */
function realDirectory(root: string, parts: readonly string[], path: string): string {
  let at = root;
  for (const part of parts) {
    at = join(at, part);
    const stats = lstatSync(at, { throwIfNoEntry: false });
    if (!stats) mkdirSync(at);
    else if (!stats.isDirectory())
      throw unsafe(path, `would be written through "${visible(part)}", which is no directory here`);
  }
  return at;
}

function removeOld(full: string, path: string): void {
  const stats = lstatSync(full, { throwIfNoEntry: false });
  if (stats?.isDirectory()) throw unsafe(path, 'would replace a directory');
  if (stats) rmSync(full);
}

async function writeNew(full: string, mode: number, content: AsyncIterable<Buffer>): Promise<void> {
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const file = openSync(full, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  try {
    for await (const piece of content)
      for (let at = 0; at < piece.length; ) at += writeSync(file, piece, at);
  } finally {
    closeSync(file);
  }
}
