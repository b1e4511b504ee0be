import type { FileContent } from '@vmux/artifacts';
import type { ScannedEntry } from '../supervisor-tree-answers';

/**
 * The clock that files are stamped with stands still for up to 10 ms: a change that soon after a look may
 * leave the same times behind, and such a file is read again.
 */
const TICK_NS = 25_000_000n;

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
  /** What the listing of the last checkpoint took; 0 when that is not known. */
  listingBytes = 0;

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
      known.identity === this.identityOf(entry);
    return same ? known.content : undefined;
  }

  /** `seenAtNs` is when the entry was as it is: whatever becomes of it later may change it without a trace for a tick. */
  remember(entry: ScannedEntry, content: FileContent, seenAtNs: bigint): void {
    const { path, mapped, size, modifiedAtNs, changedAtNs } = entry;
    const identity = this.identityOf(entry);
    if (mapped || changedAtNs > seenAtNs - TICK_NS) this.known.delete(path);
    else this.known.set(path, { size, modifiedAtNs, changedAtNs, identity, content });
  }

  /** What tells it from another file of the same path. */
  protected identityOf(entry: ScannedEntry): string {
    return entry.identity;
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
