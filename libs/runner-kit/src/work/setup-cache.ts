import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { SupervisorRefused } from '../errors';
import type { SupervisorFiles } from '../supervisor-files';

export interface SetupCacheSettings {
  readonly directory: string;
  readonly maxBytes?: number;
  /** What a single set-up may take; a larger one is not kept. */
  readonly maxEntryBytes?: number;
}

const GIB = 1024 ** 3;

/**
 * What set-ups installed, by everything that decides what they install: archives as a sandbox gave them,
 * unpacked again only inside a sandbox of the same owner. The least recently used go first.
 */
export class SetupCache {
  readonly #directory: string;
  readonly #maxBytes: number;
  readonly #maxEntryBytes: number;

  private constructor({ directory, maxBytes, maxEntryBytes }: SetupCacheSettings) {
    this.#directory = directory;
    this.#maxBytes = maxBytes ?? 10 * GIB;
    this.#maxEntryBytes = maxEntryBytes ?? 2 * GIB;
  }

  static async at(settings: SetupCacheSettings): Promise<SetupCache> {
    await mkdir(settings.directory, { recursive: true, mode: 0o700 });
    const cache = new SetupCache(settings);
    for (const name of await readdir(settings.directory))
      if (name.endsWith(DRAFT)) await cache.#drop(name);
    return cache;
  }

  /** Unpacks what is kept under that key; false when nothing is. */
  async restore(key: string, files: SupervisorFiles, signal: AbortSignal): Promise<boolean> {
    const entry = join(this.#directory, checked(key));
    const outputs = await readFile(join(entry, 'outputs.json'), 'utf8').catch(
      (fault: NodeJS.ErrnoException) => {
        if (fault.code === 'ENOENT') return undefined;
        throw fault;
      },
    );
    if (outputs === undefined) return false;
    const now = new Date();
    await utimes(entry, now, now);
    for (const [index, path] of (JSON.parse(outputs) as string[]).entries()) {
      await files.makeDirectory(path, { makeParents: true, signal });
      const archive = createReadStream(join(entry, `${index}.tar`));
      await files.tarIn(path, archive, { keepOwners: true, signal });
    }
    return true;
  }

  /** Keeps what is in those directories now; nothing when it is too much. */
  async store(
    key: string,
    outputs: readonly string[],
    files: SupervisorFiles,
    signal: AbortSignal,
  ): Promise<boolean> {
    const entry = join(this.#directory, checked(key));
    const draft = `${entry}.${process.pid}.${Date.now()}${DRAFT}`;
    await mkdir(draft, { mode: 0o700 });
    try {
      const kept: string[] = [];
      let bytes = 0;
      for (const path of outputs) {
        if (!(await isDirectory(files, path, signal))) continue;
        const bounded = bound(files.tarOut(path, { signal }), this.#maxEntryBytes - bytes);
        const file = join(draft, `${kept.length}.tar`);
        await pipeline(bounded, createWriteStream(file, { mode: 0o600 }));
        bytes += (await stat(file)).size;
        kept.push(path);
      }
      await writeFile(join(draft, 'outputs.json'), JSON.stringify(kept), { mode: 0o600 });
      await rename(draft, entry);
      await this.#trim();
      return true;
    } catch (fault) {
      await rm(draft, { recursive: true, force: true });
      const code = (fault as NodeJS.ErrnoException).code;
      if (fault instanceof TooLarge || code === 'ENOTEMPTY' || code === 'EEXIST') return false;
      throw fault;
    }
  }

  async #trim(): Promise<void> {
    const entries = await Promise.all(
      (await readdir(this.#directory)).map(async (name) => {
        const at = join(this.#directory, name);
        const sizes = await Promise.all(
          (await readdir(at)).map(async (file) => (await stat(join(at, file))).size),
        );
        const bytes = sizes.reduce((sum, size) => sum + size, 0);
        return { name, bytes, usedAt: (await stat(at)).mtimeMs };
      }),
    );
    let total = entries.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { name, bytes } of entries.sort((a, b) => a.usedAt - b.usedAt)) {
      if (total <= this.#maxBytes) return;
      await this.#drop(name);
      total -= bytes;
    }
  }

  #drop(name: string): Promise<void> {
    return rm(join(this.#directory, name), { recursive: true, force: true });
  }
}

const DRAFT = '.new';

class TooLarge extends Error {}

async function* bound(parts: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const part of parts) {
    bytes += part.length;
    if (bytes > maxBytes) throw new TooLarge('more than a set-up may take');
    yield part;
  }
}

async function isDirectory(
  files: SupervisorFiles,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    return (await files.stat(path, { signal })).type === 'directory';
  } catch (error) {
    if (error instanceof SupervisorRefused) return false;
    throw error;
  }
}

function checked(key: string): string {
  if (!/^[0-9a-f]{64}$/.test(key)) throw new Error('a key of the cache is a SHA-256 digest');
  return key;
}
