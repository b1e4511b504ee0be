import type { FileContent } from '@vmux/artifacts';
import type { SandboxId } from '../driver';
import type { ScannedEntry } from '../supervisor-tree-answers';

/**
 * The clock that files are stamped with stands still for up to 10 ms: a change that soon after a look may
 * leave the same times behind, and such a file is read again.
 */
const TICK_NS = 25_000_000n;
const MAX_SANDBOXES = 64;
/** Of all of them together. */
const MAX_FILES = 1_000_000;

interface Known {
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
  private readonly files = new Map<string, Known>();
  private kept: ReadonlySet<string> = new Set();

  get isEmpty(): boolean {
    return this.files.size === 0;
  }

  get size(): number {
    return this.files.size;
  }

  *contents(): Generator<readonly [path: string, content: FileContent]> {
    for (const [path, { content }] of this.files) yield [path, content];
  }

  find(entry: ScannedEntry): FileContent | undefined {
    const known = this.files.get(entry.path);
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
    if (mapped || changedAtNs > scannedAtNs - TICK_NS) this.files.delete(path);
    else this.files.set(path, { size, modifiedAtNs, changedAtNs, identity, content });
  }

  forget(path: string): void {
    this.files.delete(path);
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

  /** Drops what is no longer there. */
  keepOnly(paths: ReadonlySet<string>): void {
    for (const path of this.files.keys()) if (!paths.has(path)) this.files.delete(path);
  }
}

/** One index for each sandbox, for as many as are in use. */
export class FileIndexes {
  private readonly indexes = new Map<string, FileIndex>();

  of({ sessionId, epoch, instance }: SandboxId): FileIndex {
    const key = `${sessionId}/${epoch}/${instance}`;
    const index = this.indexes.get(key) ?? new FileIndex();
    this.indexes.delete(key);
    this.indexes.set(key, index);
    let files = 0;
    for (const { size } of this.indexes.values()) files += size;
    for (const [oldest, { size }] of this.indexes) {
      if (this.indexes.size <= MAX_SANDBOXES && files <= MAX_FILES) break;
      if (oldest === key) break;
      this.indexes.delete(oldest);
      files -= size;
    }
    return index;
  }

  forget({ sessionId, epoch, instance }: SandboxId): void {
    this.indexes.delete(`${sessionId}/${epoch}/${instance}`);
  }
}
