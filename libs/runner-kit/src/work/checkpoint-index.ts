import type { FileContent } from '@vmux/artifacts';
import type { SandboxId } from '../driver';
import type { ScannedEntry } from '../supervisor-tree-answers';
import type { IndexFiles } from './index-files';

/**
 * The clock that files are stamped with stands still for up to 10 ms: a change that soon after a look may
 * leave the same times behind, and such a file is read again.
 */
const TICK_NS = 25_000_000n;
const MAX_SANDBOXES = 64;
/** Of all of them together. */
const MAX_FILES = 1_000_000;

/** A file as it was when its bytes were read. */
export interface KnownFile {
  readonly size: number;
  readonly modifiedAtNs: bigint;
  readonly changedAtNs: bigint;
  readonly identity: string;
  readonly content: FileContent;
}

/**
 * What was in a sandbox's files when they were last read, so that the next checkpoint reads only what has
 * changed since. A cache: losing it costs time.
 */
export class FileIndex {
  private readonly known = new Map<string, KnownFile>();
  private kept: ReadonlySet<string> = new Set();

  get isEmpty(): boolean {
    return this.known.size === 0;
  }

  get size(): number {
    return this.known.size;
  }

  files(): Iterable<readonly [path: string, file: KnownFile]> {
    return this.known;
  }

  put(path: string, file: KnownFile): void {
    this.known.set(path, file);
  }

  *contents(): Generator<readonly [path: string, content: FileContent]> {
    for (const [path, { content }] of this.known) yield [path, content];
  }

  find(entry: ScannedEntry): FileContent | undefined {
    const known = this.known.get(entry.path);
    const same =
      known?.size === entry.size &&
      known.modifiedAtNs === entry.modifiedAtNs &&
      known.changedAtNs === entry.changedAtNs &&
      known.identity === entry.identity;
    return same ? known.content : undefined;
  }

  /** `scannedAtNs` is when the entry was looked at, before its bytes were read. */
  remember(entry: ScannedEntry, content: FileContent, scannedAtNs: bigint): void {
    const { path, mapped, size, modifiedAtNs, changedAtNs, identity } = entry;
    if (mapped || changedAtNs > scannedAtNs - TICK_NS) this.known.delete(path);
    else this.known.set(path, { size, modifiedAtNs, changedAtNs, identity, content });
  }

  forget(path: string): void {
    this.known.delete(path);
  }

  /** What the session has in the store. */
  pieces(): ReadonlySet<string> {
    const pieces = new Set(this.kept);
    for (const [, { segments }] of this.contents())
      for (const { chunk } of segments) pieces.add(chunk);
    return pieces;
  }

  /** Of the checkpoint that was taken last. */
  rememberPieces(contents: Iterable<FileContent>, given: ReadonlySet<string>): void {
    const kept = new Set(given);
    for (const { segments } of contents) for (const { chunk } of segments) kept.add(chunk);
    this.kept = kept;
  }

  keepPieces(pieces: Iterable<string>): void {
    this.kept = new Set(pieces);
  }

  /** Drops what is no longer there. */
  keepOnly(paths: ReadonlySet<string>): void {
    for (const path of this.known.keys()) if (!paths.has(path)) this.known.delete(path);
  }
}

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
