import { VmuxError } from './errors';
import { sourceOf } from './input';
import type { FileInfo } from './types';
import type { ByteSource, CallOptions, Vmux } from './vmux';

export interface FileOptions extends CallOptions {
  /** As which user of the sandbox. */
  readonly user?: string;
}

export interface ReadOptions extends FileOptions {
  readonly offset?: number;
  readonly length?: number;
}

export interface WriteOptions extends FileOptions {
  /** Such as 0o755; as before, or 0o644, without it. */
  readonly mode?: number;
}

/** The files of a session's sandbox. Paths that are not absolute start at its working directory. */
export class Files {
  private readonly path: string;

  constructor(
    private readonly vmux: Vmux,
    sessionId: string,
    private readonly workingDirectory: () => Promise<string>,
  ) {
    this.path = `/v1/sessions/${encodeURIComponent(sessionId)}/files`;
  }

  /** A whole file, as text, as bytes, or as bytes that come one after the other. */
  read(path: string, options?: ReadOptions & { readonly format?: 'text' }): Promise<string>;
  read(path: string, options: ReadOptions & { readonly format: 'bytes' }): Promise<Buffer>;
  read(path: string, options: ReadOptions & { readonly format: 'stream' }): Promise<ByteSource>;
  async read(
    path: string,
    { format = 'text', offset, length, ...options }: ReadOptions & { format?: string } = {},
  ): Promise<string | Buffer | ByteSource> {
    const query = { ...(await this.query(path, options)), offset, length };
    const bytes = this.vmux.bytes(this.path, { query, signal: options.signal });
    if (format === 'stream') return bytes;
    const whole = await collected(bytes);
    return format === 'bytes' ? whole : whole.toString('utf8');
  }

  /** Writes a file whole: readers see the old one until all of the new one is there. Makes directories. */
  async write(
    path: string,
    data: string | Uint8Array | ByteSource,
    { mode, ...options }: WriteOptions = {},
  ): Promise<void> {
    const query = {
      ...(await this.query(path, options)),
      mode: mode === undefined ? undefined : octal(mode),
      parents: true,
    };
    const { signal } = options;
    if (typeof data === 'string' || data instanceof Uint8Array)
      await this.insisting(() =>
        this.vmux.call('PUT', this.path, { query, body: Buffer.from(data), signal }),
      );
    else await this.vmux.once('PUT', this.path, { query, body: data, signal });
  }

  /** What a directory holds, by name. */
  async list(path: string, options: FileOptions = {}): Promise<readonly FileInfo[]> {
    const query = await this.query(path, options);
    const { entries } = await this.vmux.call<{ entries: FileInfo[] }>('GET', `${this.path}/list`, {
      query,
      signal: options.signal,
    });
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** What is at a path: of a link itself, or with `follow` of what it leads to. */
  async stat(
    path: string,
    { follow, ...options }: FileOptions & { readonly follow?: boolean } = {},
  ): Promise<FileInfo> {
    const query = { ...(await this.query(path, options)), follow };
    return this.vmux.call('GET', `${this.path}/stat`, { query, signal: options.signal });
  }

  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (fault) {
      if (fault instanceof VmuxError && fault.code === 'file_not_found') return false;
      throw fault;
    }
  }

  /** Removes a file, or with `recursive` a directory with everything in it. */
  async remove(
    path: string,
    { recursive, ...options }: FileOptions & { readonly recursive?: boolean } = {},
  ): Promise<void> {
    const query = { ...(await this.query(path, options)), recursive };
    await this.vmux.call('DELETE', this.path, { query, signal: options.signal });
  }

  /** Makes a directory and those above it; one that is there is fine. */
  async makeDir(path: string, { mode, ...options }: WriteOptions = {}): Promise<void> {
    const { user, signal } = options;
    const { path: absolute } = await this.query(path, options);
    const body = {
      ...{ path: absolute, user, parents: true },
      mode: mode === undefined ? undefined : octal(mode),
    };
    await this.insisting(() => this.vmux.call('POST', `${this.path}/mkdir`, { body, signal }));
  }

  /**
   * A directory's contents, or a file, as a tar archive. It comes from a sandbox: what unpacks it must
   * not trust its names, links and modes.
   */
  async download(path: string, options: FileOptions = {}): Promise<ByteSource> {
    const query = await this.query(path, options);
    return this.vmux.bytes(`${this.path}/archive`, { query, signal: options.signal });
  }

  /** Unpacks a tar archive into a directory. Not atomic: entries come one by one. */
  async upload(
    path: string,
    tar: Uint8Array | ByteSource,
    options: FileOptions = {},
  ): Promise<{ readonly entries: number }> {
    const query = await this.query(path, options);
    const body = sourceOf(tar);
    return this.vmux.once('PUT', `${this.path}/archive`, { query, body, signal: options.signal });
  }

  private async query(
    path: string,
    { user }: FileOptions,
  ): Promise<{ path: string; user?: string }> {
    const isAbsolute = path.startsWith('/');
    const absolute = isAbsolute ? path : `${await this.workingDirectory()}/${path}`;
    return { path: absolute, user };
  }

  /** What is the same when it is done twice is done again after a cut. */
  private async insisting(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (fault) {
      if (!(fault instanceof VmuxError && fault.code === 'tunnel_broken')) throw fault;
      await work();
    }
  }
}

const octal = (mode: number): string => (mode & 0o7777).toString(8).padStart(4, '0');

async function collected(source: ByteSource): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}
