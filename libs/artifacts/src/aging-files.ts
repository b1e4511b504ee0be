import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import { open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type Digest, isDigest } from './digest';

/** Files whose time of change says when somebody last wanted them. */

/**
 * Whether it is there. If it is getting old it becomes young again: whoever was told that it is there has
 * at least half a grace period to refer to it.
 */
export async function keepYoung(path: string, graceMs: number): Promise<boolean> {
  const found = await statusOf(path);
  if (!found) return false;
  if (Date.now() - found.mtimeMs < graceMs / 2) return true;
  try {
    await utimes(path, new Date(), new Date());
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/**
 * Removes a file that nobody has wanted for a whole grace period; says how many bytes. It is moved aside
 * first and looked at again there: one that was wanted in between comes back.
 */
export async function dropOld(path: string, aside: string, graceMs: number): Promise<number> {
  const isOld = (found: Stats) => Date.now() - found.mtimeMs >= graceMs;
  const before = await statusOf(path);
  if (!before || !isOld(before)) return 0;
  const moved = join(aside, randomUUID());
  await rename(path, moved);
  const found = await stat(moved);
  if (!isOld(found)) {
    await rename(moved, path);
    return 0;
  }
  await rm(moved, { force: true });
  return found.size;
}

/** `<2 hex>/<62 hex>` beneath a directory. */
export async function* listByDigest(top: string): AsyncGenerator<Digest> {
  for (const first of await readdir(top))
    for (const rest of await readdir(join(top, first)))
      if (isDigest(first + rest)) yield first + rest;
}

export async function statusOf(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
