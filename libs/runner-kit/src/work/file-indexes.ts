import type { SandboxId } from '../driver';
import { FileIndex } from './checkpoint-index';
import type { IndexFiles } from './index-files';

const MAX_SANDBOXES = 64;
/** Of all of them together. */
const MAX_FILES = 1_000_000;

/** The indexes that are in use, by name; those that are not lie on the disk, if there is one for them. */
export class FileIndexes {
  private readonly indexes = new Map<string, Promise<FileIndex>>();
  private readonly sizes = new Map<string, number>();

  constructor(
    private readonly disk: IndexFiles | null = null,
    private readonly make: () => FileIndex = () => new FileIndex(),
  ) {}

  of(key: string): Promise<FileIndex> {
    const index = this.indexes.get(key) ?? this.load(key);
    this.indexes.delete(key);
    this.indexes.set(key, index);
    let files = 0;
    for (const size of this.sizes.values()) files += size;
    for (const oldest of this.indexes.keys()) {
      if (this.indexes.size <= MAX_SANDBOXES && files <= MAX_FILES) break;
      if (oldest === key) break;
      files -= this.sizes.get(oldest) ?? 0;
      this.indexes.delete(oldest);
      this.sizes.delete(oldest);
    }
    return index;
  }

  /** For whoever comes after this process. */
  async keep(key: string): Promise<void> {
    const index = await this.indexes.get(key);
    if (!index) return;
    this.sizes.set(key, index.size);
    await this.disk?.save(key, index);
  }

  async forget(key: string): Promise<void> {
    this.indexes.delete(key);
    this.sizes.delete(key);
    await this.disk?.forget(key);
  }

  private async load(key: string): Promise<FileIndex> {
    const index = this.make();
    await this.disk?.load(key, index);
    this.sizes.set(key, index.size);
    return index;
  }
}

export const indexKeyOf = ({ sessionId, epoch, instance }: SandboxId): string =>
  `${sessionId}/${epoch}/${instance}`;
