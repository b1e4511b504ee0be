import { randomBytes } from 'node:crypto';
import {
  constants,
  copyFile,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, type NativeCheckpoint, SandboxError } from '@vmux/runner-kit';
import { runProgram } from './ns-launcher';
import { bootId } from './ns-store';
import { diskTemplate } from './ns-templates';

/** `auto`: on a filesystem whose files can be cloned, made for the purpose where there is none. */
export type NsStoreKind = 'auto' | 'plain';

/** What has to be the same for a checkpoint to be the disk of a sandbox. */
export interface NsDiskFacts {
  /** Where each of the base's trees is mounted. */
  readonly trees: readonly string[];
  readonly image: string | null;
  /** The files of the workload are those that changed after this time, in nanoseconds since 1970. */
  readonly sinceNs: string;
}

interface Recorded extends NsDiskFacts {
  readonly version: 1;
  readonly bytes: number;
  /** In milliseconds, before its sandbox stood still for it. */
  readonly at: number;
  /** Null once it is on the disk for good: what a crash of the machine may have torn is not used. */
  readonly boot: string | null;
}

const LEAST_STORE_BYTES = 1 << 30;
const MOUNT = 'mountpoint -q "$0" || exec mount -t btrfs -o loop,noatime,nodatacow "$1" "$0"';
const UNMOUNT = '! mountpoint -q "$0" || exec umount "$0"';

/**
 * The disks of sandboxes and their checkpoints, in a directory whose files can be cloned at once, whatever
 * their size: on btrfs or XFS as they are, otherwise in a btrfs of its own, in a sparse file. Without either
 * there are no native checkpoints, and sandboxes keep their disks beside their other files.
 */
export class NsDisks {
  private constructor(
    private readonly dataDir: string,
    private readonly isLoop: boolean,
    /** Why files cannot be cloned here; undefined when they can. */
    readonly whyNot: string | undefined,
  ) {}

  static async open(dataDir: string, kind: NsStoreKind): Promise<NsDisks> {
    const directory = join(dataDir, 'store');
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const isMounted = await isMount(directory, dataDir);
    const first = await whyNoClones(directory);
    if (first === undefined) {
      const disks = new NsDisks(dataDir, isMounted, undefined);
      await disks.#furnish();
      return disks;
    }
    if (kind === 'plain') return new NsDisks(dataDir, false, first);
    const disks = new NsDisks(dataDir, true, undefined);
    try {
      await disks.#mount();
      await disks.#furnish();
      return disks;
    } catch (fault) {
      if (!(fault instanceof SandboxError)) throw fault;
      return new NsDisks(dataDir, false, `${first}, and no btrfs can be made: ${fault.message}`);
    }
  }

  /** No native checkpoints, for that reason. */
  static without(dataDir: string, whyNot: string): NsDisks {
    return new NsDisks(dataDir, false, whyNot);
  }

  /** Room for a sandbox that is in `sandboxDir`, made out of an empty disk or of a checkpoint. */
  async add(key: string, sandboxDir: string, from: number | NativeCheckpoint): Promise<void> {
    await this.#ready();
    const source =
      typeof from === 'number'
        ? await diskTemplate(join(this.#directory, 'templates'), from)
        : this.#imageOf(from.ref);
    await copyFile(source, this.#diskOf(key), constants.COPYFILE_FICLONE_FORCE);
    await symlink(this.#diskOf(key), join(sandboxDir, 'disk.img'));
  }

  async remove(key: string): Promise<void> {
    if (this.whyNot === undefined) await rm(this.#diskOf(key), { force: true });
  }

  /** What `clone` makes of the disk, and says the size of, under a name that was not there before. */
  async keep(
    key: string,
    ref: string,
    facts: NsDiskFacts,
    clone: (disk: string, draft: string) => Promise<number>,
  ): Promise<NativeCheckpoint> {
    const draft = `${this.#imageOf(ref)}~`;
    const at = Date.now();
    const bytes = await clone(this.#diskOf(key), draft);
    await this.#record(ref, {
      version: 1,
      ...facts,
      bytes,
      at,
      boot: await bootId(),
    });
    await rename(draft, this.#imageOf(ref));
    return { ref, bytes };
  }

  /** What was kept of them is on the disk for good. */
  async settle(refs: readonly string[]): Promise<void> {
    if (refs.length === 0) return;
    await runProgram('sync', ['-f', this.#directory]);
    for (const ref of refs) {
      const known = await this.#recorded(ref);
      if (known) await this.#record(ref, { ...known, boot: null });
    }
  }

  /** Undefined when it is not there, or no longer what was kept. */
  async find(
    ref: string,
  ): Promise<(NsDiskFacts & NativeCheckpoint & { readonly at: number }) | undefined> {
    if (this.whyNot !== undefined || !REF.test(ref)) return undefined;
    await this.#ready();
    const known = await this.#recorded(ref);
    if (!known || (known.boot !== null && known.boot !== (await bootId()))) return undefined;
    const isThere = await stat(this.#imageOf(ref)).then(
      () => true,
      () => false,
    );
    return isThere ? { ...known, ref } : undefined;
  }

  async drop(ref: string): Promise<void> {
    if (this.whyNot !== undefined || !REF.test(ref)) return;
    await this.#ready();
    await rm(this.#imageOf(ref), { force: true });
    await rm(this.#recordOf(ref), { force: true });
  }

  /** Every checkpoint that is kept here. */
  async refs(): Promise<readonly string[]> {
    if (this.whyNot !== undefined) return [];
    await this.#ready();
    const names = await readdir(join(this.#directory, 'c'));
    const refs = names.flatMap((name) => (name.endsWith('.img') ? [name.slice(0, -4)] : []));
    const dated = await Promise.all(
      refs.map(async (ref) => ({ ref, at: (await this.#recorded(ref))?.at ?? 0 })),
    );
    return dated.sort((one, other) => one.at - other.at).map(({ ref }) => ref);
  }

  /** Removes what nobody has: disks of sandboxes that are not there, and what was half made. */
  async sweep(keys: ReadonlySet<string>): Promise<void> {
    if (this.whyNot !== undefined) return;
    for (const name of await readdir(join(this.#directory, 'd')))
      if (!keys.has(name.replace(/\.img$/, ''))) await rm(join(this.#directory, 'd', name));
    const images = new Set(await this.refs());
    for (const name of await readdir(join(this.#directory, 'c'))) {
      const isDraft = name.endsWith('~') && !images.has(name.slice(0, -5));
      const isAlone = name.endsWith('.json') && !images.has(name.slice(0, -5));
      if (isDraft || isAlone) await rm(join(this.#directory, 'c', name));
    }
  }

  /** Without sandboxes nothing of it is in use. */
  async close(): Promise<void> {
    if (!this.isLoop || this.whyNot !== undefined) return;
    if (!(await isMount(this.#directory, this.dataDir))) return;
    if ((await readdir(join(this.#directory, 'd'))).length > 0) return;
    await this.#alone(UNMOUNT).catch((fault) => {
      // Somebody looks into it: whoever closes next unmounts it.
      if (!(fault instanceof SandboxError)) throw fault;
    });
  }

  get #directory(): string {
    return join(this.dataDir, 'store');
  }
  #diskOf(key: string): string {
    return join(this.#directory, 'd', `${key}.img`);
  }
  #imageOf(ref: string): string {
    return join(this.#directory, 'c', `${ref}.img`);
  }
  #recordOf(ref: string): string {
    return join(this.#directory, 'c', `${ref}.json`);
  }

  async #record(ref: string, known: Recorded): Promise<void> {
    await writeFile(`${this.#recordOf(ref)}~`, JSON.stringify(known), { mode: 0o600 });
    await rename(`${this.#recordOf(ref)}~`, this.#recordOf(ref));
  }

  async #recorded(ref: string): Promise<Recorded | undefined> {
    const text = await readFile(this.#recordOf(ref), 'utf8').catch(
      (fault: NodeJS.ErrnoException) => {
        if (fault.code === 'ENOENT') return undefined;
        throw fault;
      },
    );
    if (text === undefined) return undefined;
    const known = JSON.parse(text) as Recorded;
    return known.version === 1 ? known : undefined;
  }

  async #furnish(): Promise<void> {
    for (const name of ['d', 'c', 'templates'])
      await mkdir(join(this.#directory, name), { recursive: true, mode: 0o700 });
  }

  /** Another process may have let go of it. */
  async #ready(): Promise<void> {
    if (!this.isLoop || (await isMount(this.#directory, this.dataDir))) return;
    await this.#mount();
    await this.#furnish();
  }

  async #mount(): Promise<void> {
    const image = join(this.dataDir, 'store.btrfs');
    if (!(await exists(image))) await this.#make(image);
    await this.#alone(MOUNT, image);
  }

  /** As large as what is free now: it takes what is written to it and no more. */
  async #make(image: string): Promise<void> {
    const { bavail, bsize } = await statfs(this.dataDir);
    const bytes = Math.floor((bavail * bsize) / 4096) * 4096;
    if (bytes < LEAST_STORE_BYTES)
      throw new DriverRefused('unsupported', `${this.dataDir} has less than 1 GiB free`);
    const draft = `${image}.${randomBytes(4).toString('hex')}`;
    try {
      await writeFile(draft, '', { mode: 0o600 });
      await truncate(draft, bytes);
      await runProgram('mkfs.btrfs', ['-q', '-f', '-m', 'single', draft]);
      if (!(await exists(image))) await rename(draft, image);
    } finally {
      await rm(draft, { force: true });
    }
  }

  /** By one process at a time. */
  async #alone(script: string, ...more: readonly string[]): Promise<void> {
    const lock = join(this.dataDir, 'store.lock');
    await runProgram('flock', [lock, '/bin/sh', '-c', script, this.#directory, ...more]);
  }
}

const REF = /^[a-z0-9-]{1,63}\.[0-9a-f]{16}$/;
export const sessionOfRef = (ref: string): string => ref.slice(0, ref.lastIndexOf('.'));

const isMount = async (directory: string, parent: string): Promise<boolean> =>
  (await stat(directory)).dev !== (await stat(parent)).dev;

async function whyNoClones(directory: string): Promise<string | undefined> {
  const from = join(directory, `.try-${randomBytes(4).toString('hex')}`);
  try {
    await writeFile(from, Buffer.alloc(8192, 1));
    await copyFile(from, `${from}-clone`, constants.COPYFILE_FICLONE_FORCE);
    return undefined;
  } catch (fault) {
    return `files cannot be cloned in ${directory} (${(fault as NodeJS.ErrnoException).code})`;
  } finally {
    await rm(from, { force: true });
    await rm(`${from}-clone`, { force: true });
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    (fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT') return false;
      throw fault;
    },
  );
