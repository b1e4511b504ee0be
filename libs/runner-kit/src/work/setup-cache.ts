import { randomUUID } from 'node:crypto';
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
  /** How many read an entry now: it stays for as long. */
  readonly #reading = new Map<string, number>();
  #trimming: Promise<void> = Promise.resolve();

  private constructor({ directory, maxBytes, maxEntryBytes }: SetupCacheSettings) {
    this.#directory = directory;
    this.#maxBytes = maxBytes ?? 10 * GIB;
    this.#maxEntryBytes = maxEntryBytes ?? 2 * GIB;
  }

  static async at(settings: SetupCacheSettings): Promise<SetupCache> {
    await mkdir(settings.directory, { recursive: true, mode: 0o700 });
    const cache = new SetupCache(settings);
    for (const name of await readdir(settings.directory))
      if (name.endsWith(DRAFT)) await rm(join(settings.directory, name), GONE);
    return cache;
  }

  /** Unpacks what is kept under that key; false when nothing is. */
  async restore(key: string, files: SupervisorFiles, signal: AbortSignal): Promise<boolean> {
    this.#reading.set(key, (this.#reading.get(key) ?? 0) + 1);
    try {
      return await this.#restore(key, files, signal);
    } finally {
      const left = (this.#reading.get(key) ?? 1) - 1;
      if (left > 0) this.#reading.set(key, left);
      else this.#reading.delete(key);
    }
  }

  async #restore(key: string, files: SupervisorFiles, signal: AbortSignal): Promise<boolean> {
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

  /** Keeps what is in those directories now; nothing when that is nothing, or too much. */
  async store(
    key: string,
    outputs: readonly string[],
    files: SupervisorFiles,
    signal: AbortSignal,
  ): Promise<boolean> {
    const entry = join(this.#directory, checked(key));
    const draft = `${entry}.${randomUUID()}${DRAFT}`;
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
      // It installed elsewhere, or nothing: the next session would be told that it is there.
      if (kept.length === 0) {
        await rm(draft, GONE);
        return false;
      }
      await writeFile(join(draft, 'outputs.json'), JSON.stringify(kept), { mode: 0o600 });
      await rename(draft, entry);
    } catch (fault) {
      await rm(draft, GONE);
      const code = (fault as NodeJS.ErrnoException).code;
      if (fault instanceof TooLarge || code === 'ENOTEMPTY' || code === 'EEXIST') return false;
      throw fault;
    }
    // One after the other: two that count the same entries would drop twice as much.
    this.#trimming = this.#trimming.catch(() => undefined).then(() => this.#trim());
    await this.#trimming;
    return true;
  }

  async #trim(): Promise<void> {
    const names = (await readdir(this.#directory)).filter((name) => !name.endsWith(DRAFT));
    const entries = await Promise.all(
      names.map(async (name) => {
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
      if (this.#reading.has(name)) continue;
      await this.#drop(name);
      total -= bytes;
    }
  }

  /** Nobody ever finds half of it. */
  async #drop(name: string): Promise<void> {
    const draft = join(this.#directory, `${name}.${randomUUID()}${DRAFT}`);
    await rename(join(this.#directory, name), draft);
    await rm(draft, GONE);
  }
}

const DRAFT = '.new';
const GONE = { recursive: true, force: true };

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
