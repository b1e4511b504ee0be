import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NativeCheckpoint, SandboxDriver } from '@vmux/runner-kit';

interface Kept {
  /** Null once it was deleted. */
  readonly disk: NativeCheckpoint | null;
  /** In seconds since 1970; null: never. */
  readonly expiresAt: number | null;
}

/** Images that are not a registry's: what was built, and what was a sandbox's files at some moment. */
export class ImageShelf {
  private readonly images = new Map<string, Kept>();

  constructor(
    private readonly driver: SandboxDriver,
    private readonly dir: string,
  ) {}

  /** Finds again what an earlier process kept. */
  async open(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    for (const file of await readdir(this.dir))
      if (file.endsWith('.json'))
        this.images.set(
          file.slice(0, -'.json'.length),
          JSON.parse(await readFile(join(this.dir, file), 'utf8')),
        );
  }

  get all(): readonly { readonly imageId: string; readonly isGone: boolean }[] {
    return [...this.images].map(([imageId, { expiresAt }]) => ({
      imageId,
      expiresAt,
      isGone: this.isGone(imageId),
    }));
  }

  has(imageId: string): boolean {
    return this.images.has(imageId) && !this.isGone(imageId);
  }

  /** It was here. */
  isGone(imageId: string): boolean {
    const kept = this.images.get(imageId);
    if (!kept) return false;
    return kept.disk === null || (kept.expiresAt !== null && kept.expiresAt * 1000 <= Date.now());
  }

  /** Nothing for an image of a registry, which is the root that every sandbox has. */
  diskOf(imageId: string): NativeCheckpoint | undefined {
    return this.images.get(imageId)?.disk ?? undefined;
  }

  async keep(imageId: string, disk: NativeCheckpoint, ttlSeconds = 0): Promise<void> {
    const expiresAt = ttlSeconds > 0 ? Date.now() / 1000 + ttlSeconds : null;
    await this.put(imageId, { disk, expiresAt });
  }

  /** False when there is none. What runs out of it goes on. */
  async remove(imageId: string): Promise<boolean> {
    const disk = this.diskOf(imageId);
    if (!disk) return false;
    await this.put(imageId, { disk: null, expiresAt: null });
    await this.driver.forget?.(disk.ref);
    return true;
  }

  private async put(imageId: string, kept: Kept): Promise<void> {
    await writeJson(this.dir, imageId, kept);
    this.images.set(imageId, kept);
  }
}

export async function writeJson(dir: string, name: string, content: object): Promise<void> {
  const file = join(dir, `${name}.json`);
  const draft = `${file}.${randomBytes(4).toString('hex')}`;
  await writeFile(draft, JSON.stringify(content), { mode: 0o600 });
  await rename(draft, file).catch(async (fault) => {
    await rm(draft, { force: true });
    throw fault;
  });
}
