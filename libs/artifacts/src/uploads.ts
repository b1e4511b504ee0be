import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, mkdir, mkdtemp, open, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { statusOf } from './aging-files';
import { type Digest, isDigest } from './digest';
import {
  ArtifactNotFound,
  type ArtifactStore,
  ArtifactTooLarge,
  DigestMismatch,
  type PutOptions,
  type StoredArtifact,
} from './port';

/** Bytes of a content from `from` up to, but not including, `end`. */
export interface UploadPart {
  readonly from: number;
  readonly end: number;
  /** Of the whole content. */
  readonly total: number;
}

export interface UploadSettings {
  /** How long what has come stays when nobody goes on with it. */
  readonly keptMs: number;
  /** At once, of one owner; the oldest makes room. */
  readonly ofAnOwner: number;
}

const DEFAULTS: UploadSettings = { keptMs: 24 * 3600_000, ofAnOwner: 4 };

/**
 * Uploads that go on where they were cut: what has come of a content waits in a file of its owner's, whom
 * alone it is told, and goes into the store, with all its checks, when the whole is there. Several processes
 * may share the directory.
 */
export class Uploads {
  private sweptAtMs = 0;

  private constructor(
    private readonly directory: string,
    private readonly store: ArtifactStore,
    private readonly settings: UploadSettings,
  ) {}

  static async at(
    directory: string,
    store: ArtifactStore,
    settings: Partial<UploadSettings> = {},
  ): Promise<Uploads> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    return new Uploads(directory, store, { ...DEFAULTS, ...settings });
  }

  /** Of a store that is at `location`; on this machine, beneath `dataDir`, if that is a bucket. */
  static async of(location: string, store: ArtifactStore, dataDir: string | null) {
    if (!location.startsWith('s3://')) return Uploads.at(join(location, 'uploads'), store);
    const own = dataDir ?? (await mkdtemp(join(tmpdir(), 'vmux-uploads-')));
    return Uploads.at(join(own, 'uploads'), store);
  }

  /** How many bytes of it this owner has sent. */
  async offsetOf(owner: string, digest: Digest): Promise<number> {
    const found = await statusOf(this.pathOf(owner, digest));
    return found && this.isYoung(found.mtimeMs) ? found.size : 0;
  }

  /**
   * Takes a part; the whole once it is there, else how far it has come. Parts may be sent again. A part that is cut
   * leaves what has come of it; one that makes the whole something else than its digest leaves nothing.
   */
  async take(
    digest: Digest,
    part: UploadPart,
    source: AsyncIterable<Uint8Array>,
    options: PutOptions,
  ): Promise<StoredArtifact | { readonly offset: number }> {
    const { owner, maxBytes } = options;
    if (part.total > maxBytes) throw new ArtifactTooLarge(maxBytes);
    await this.sweep();
    const held = await this.offsetOf(owner, digest);
    const path = this.pathOf(owner, digest);
    if (held === 0) await rm(path, { force: true });
    if (part.from > held) throw new UploadGap(held);
    await this.makeRoom(path);
    const offset = await this.write(path, part, source, options.signal);
    if (offset < part.total) return { offset };
    // Opened first: it may have made room for another one, and a stream would say so to nobody.
    const file = await open(path, constants.O_RDONLY).catch((error: unknown) => {
      throw isAbsent(error) ? new UploadGap(0) : error;
    });
    try {
      // Read again and stored as anything else: others may still write to this file.
      const whole = file.createReadStream({ start: 0, end: part.total - 1, autoClose: false });
      const stored = await this.store.put(digest, whole, options);
      await rm(path, { force: true });
      return stored;
    } catch (error) {
      if (error instanceof DigestMismatch) await rm(path, { force: true });
      throw error;
    } finally {
      await file.close();
    }
  }

  /** Drops what nobody has gone on with. */
  async dropExpired(): Promise<void> {
    for (const owner of await readdir(this.directory)) {
      const files = await this.filesOf(join(this.directory, owner));
      for (const { path, atMs } of files) if (!this.isYoung(atMs)) await rm(path, { force: true });
    }
  }

  private async sweep(): Promise<void> {
    const now = Date.now();
    if (now - this.sweptAtMs < this.settings.keptMs / 24) return;
    this.sweptAtMs = now;
    await this.dropExpired();
  }

  private async makeRoom(path: string): Promise<void> {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const others = (await this.filesOf(dirname(path))).filter((file) => file.path !== path);
    const excess = others.length + 1 - this.settings.ofAnOwner;
    others.sort((one, other) => one.atMs - other.atMs);
    for (const file of others.slice(0, Math.max(0, excess))) await rm(file.path, { force: true });
  }

  private async write(
    path: string,
    { from, end }: UploadPart,
    source: AsyncIterable<Uint8Array>,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o600);
    try {
      let at = from;
      for await (const bytes of source) {
        signal?.throwIfAborted();
        if (at + bytes.byteLength > end) {
          await rm(path, { force: true });
          throw new UploadOverrun(end - from);
        }
        await writeAt(file, bytes, at);
        at += bytes.byteLength;
      }
      return at;
    } finally {
      await file.close();
    }
  }

  private async filesOf(directory: string) {
    const found = [];
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      const status = await statusOf(path);
      if (status) found.push({ path, atMs: status.mtimeMs });
    }
    return found;
  }

  private isYoung(atMs: number): boolean {
    return Date.now() - atMs < this.settings.keptMs;
  }

  private pathOf(owner: string, digest: Digest): string {
    if (!isDigest(digest)) throw new ArtifactNotFound(digest);
    const name = createHash('sha256').update(owner).digest('hex');
    return join(this.directory, name, digest);
  }
}

async function writeAt(file: FileHandle, bytes: Uint8Array, at: number): Promise<void> {
  for (let written = 0; written < bytes.byteLength; ) {
    const left = bytes.byteLength - written;
    written += (await file.write(bytes, written, left, at + written)).bytesWritten;
  }
}

const isAbsent = (error: unknown): boolean =>
  (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';

/** A part begins after what is there: it was never sent, has expired, or is somebody else's. */
export class UploadGap extends Error {
  readonly code = 'upload_gap';
  constructor(readonly offset: number) {
    super(`of this upload ${offset} bytes are here: send it from there`);
    this.name = 'UploadGap';
  }
}

export class UploadOverrun extends Error {
  readonly code = 'upload_overrun';
  constructor(readonly announced: number) {
    super(`more bytes came than the ${announced} that were announced: begin again`);
    this.name = 'UploadOverrun';
  }
}
