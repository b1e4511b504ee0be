import {
  type ChunkStore,
  checkEntry,
  type FileContent,
  type ManifestEntry,
  ManifestRefused,
  ManifestWriter,
} from '@vmux/artifacts';
import type { Base } from '@vmux/events';
import { ProtocolViolation } from '../errors';
import type { SupervisorClient } from '../supervisor-client';
import type { FileStatus, ScannedEntry } from '../supervisor-tree-answers';
import type { FileIndex } from './checkpoint-index';
import { type ScannedTree, scanTree, whiteoutsOf } from './checkpoint-tree';
import { ContentWriter, type WrittenFile } from './content-writer';
import { NewPieces } from './new-pieces';
import { type ScanRoom, scanRoom } from './scan-room';

export interface TakeSettings {
  readonly client: SupervisorClient;
  readonly store: ChunkStore;
  readonly index: FileIndex;
  readonly base: Base;
  /** What of the base was removed, absolute; asked while everything stands still. */
  removed(): Promise<readonly string[]>;
  /** Done while everything stands still, with the time after which files count as the workload's. */
  alongside?(sinceNs: bigint): Promise<void>;
  /** More than this is not a session's files but a lie about them. */
  readonly maxBytes: number;
  /** It stays frozen. */
  readonly hold: boolean;
  readonly signal: AbortSignal;
  /** Of files that are no longer the sandbox's own: when they were last. Otherwise when they are listed. */
  readonly takenAtNs?: bigint;
  /** That of this process, if no other. */
  readonly room?: ScanRoom;
}

type TakeNow = Omit<TakeSettings, 'room'> & { readonly maxScanBytes: number };

export interface TakenTree {
  readonly artifact: string;
  readonly manifestDigest: string;
  readonly bytes: number;
  /** What the session did not have before, of files and of what describes them. */
  readonly newBytes: number;
}

/** From here on it is worth reading while the sandbox still runs: it then stands still for less. */
const WORTH_READING_AHEAD = 16 * 1024 * 1024;
const READS_AHEAD = 2;

/**
 * Stores a sandbox's files as they are at one moment. Much of them is read while it runs; then everything
 * stands still and what has changed meanwhile is read again.
 */
export function takeCheckpoint({ room = scanRoom, ...settings }: TakeSettings): Promise<TakenTree> {
  const take = (maxScanBytes: number, signal: AbortSignal) =>
    takeNow({ ...settings, signal, maxScanBytes });
  return room.run(take, settings.signal, settings.index.listingBytes);
}

async function takeNow(settings: TakeNow): Promise<TakenTree> {
  const { client, index, maxScanBytes, signal } = settings;
  const store = new NewPieces(settings.store, index.pieces());
  const writer = new ContentWriter(store);
  const reading = new Reading(settings, writer);
  await reading.forgetLost();
  // Without an index nearly everything has to be read: it would stand still in vain.
  if (index.isEmpty) await reading.ahead(await scanTree(client, maxScanBytes, signal));
  for (let ahead = 0; ; ahead++) {
    const still = await standStill(settings);
    try {
      const removing = settings.removed();
      // Heard of below, if it comes to that.
      removing.catch(() => undefined);
      const tree = await scanTree(client, maxScanBytes, signal);
      const { contents, owed } = reading.known(tree);
      if (ahead < READS_AHEAD && bytesOf(owed) > WORTH_READING_AHEAD) {
        await still.end();
        await reading.ahead(tree);
        continue;
      }
      const [written, removed] = await Promise.all([
        reading.read(owed, 'frozen'),
        removing,
        settings.alongside?.(tree.sinceNs),
      ]);
      const whiteouts = whiteoutsOf(removed);
      still.check();
      if (!settings.hold) await still.end();
      for (const [path, content] of await reading.stored(tree, written))
        contents.set(path, content);
      const { base } = settings;
      const manifest = await writeManifest(store, base, whiteouts, tree, contents);
      index.listingBytes = tree.bytes;
      index.keepOnly(new Set(tree.entries.map(({ path }) => path)));
      index.rememberPieces(contents.values(), store.pieces);
      const { root, artifact } = manifest;
      const { newBytes } = store;
      return { artifact, manifestDigest: root.treeDigest, bytes: root.bytes, newBytes };
    } catch (error) {
      // Held or not: a checkpoint that failed holds nothing. Over a broken pipe the next try says so.
      await still.end().catch(() => undefined);
      throw error;
    }
  }
}

interface Still {
  check(): void;
  end(): Promise<void>;
}

/** What is held outlives this process; the other ends with the pipe. */
async function standStill({ client, hold, signal }: TakeSettings): Promise<Still> {
  const { trees } = client;
  if (hold) {
    await trees.hold({ signal });
    return { check: () => undefined, end: () => trees.thaw() };
  }
  const frozen = await trees.freeze({ signal });
  return { check: () => frozen.check(), end: async () => frozen.release() };
}

type Contents = ReadonlyMap<string, FileContent>;
interface Known {
  readonly contents: Map<string, FileContent>;
  readonly owed: readonly ScannedEntry[];
}
type State = 'running' | 'frozen';
type Written = ReadonlyMap<ScannedEntry, WrittenFile>;

/** Reads the files of a tree that are not known, and remembers them. */
class Reading {
  private readBytes = 0;

  constructor(
    private readonly settings: TakeSettings,
    private readonly writer: ContentWriter,
  ) {}

  /** What the index says is worth nothing if the store has lost it; what it has stays for long enough. */
  async forgetLost(): Promise<void> {
    const { index, store } = this.settings;
    const known = [...index.contents()];
    const wanted = new Set(known.flatMap(([, { segments }]) => segments.map((s) => s.chunk)));
    const missing = await store.missing(wanted);
    if (missing.size === 0) return;
    for (const [path, { segments }] of known)
      if (segments.some(({ chunk }) => missing.has(chunk))) index.forget(path);
  }

  /** What is in the files that are known, and the files that have to be read. */
  known(tree: ScannedTree): Known {
    const contents = new Map<string, FileContent>();
    const owed: ScannedEntry[] = [];
    for (const entry of firstNames(tree.entries)) {
      const content = this.settings.index.find(entry);
      if (content) contents.set(entry.path, content);
      else owed.push(entry);
    }
    return { contents, owed };
  }

  async ahead(tree: ScannedTree): Promise<void> {
    await this.stored(tree, await this.read(this.known(tree).owed, 'running'));
  }

  /** Returns when what was read is stored: the sandbox need not stand still for that. */
  async stored({ scannedAtNs }: ScannedTree, written: Written): Promise<Contents> {
    const { index, takenAtNs: seenAtNs = scannedAtNs } = this.settings;
    await this.writer.finish();
    const contents = new Map<string, FileContent>();
    for (const [entry, file] of written) {
      const content = file.content();
      contents.set(entry.path, content);
      index.remember(entry, content, seenAtNs);
    }
    return contents;
  }

  async read(entries: readonly ScannedEntry[], state: State): Promise<Written> {
    const { client, signal } = this.settings;
    const written = new Map<ScannedEntry, WrittenFile>();
    if (entries.length === 0) return written;
    const paths = entries.map(({ path }) => path);
    const remaining = entries.values();
    let file: OpenFile | undefined;
    for await (const item of client.trees.readMany(paths, { signal })) {
      if (item.kind === 'begin' || item.kind === 'failed') {
        if (file) throw new ProtocolViolation('READ_MANY: a file within a file');
        const { value: entry } = remaining.next();
        if (!entry) throw new ProtocolViolation('READ_MANY: a file that was not asked for');
        if (item.kind === 'failed') {
          changed(entry, state, `it cannot be read (error ${item.errno})`);
          continue;
        }
        file = new OpenFile(entry, item.status);
        this.writer.begin(item.status.size);
      } else if (!file) {
        throw new ProtocolViolation('READ_MANY: bytes of no file');
      } else if (item.kind === 'block') {
        this.count(item.bytes.length);
        if (file.takes(item.offset, item.bytes.length, state))
          await this.writer.block(item.offset, item.bytes);
      } else {
        const done = this.writer.end();
        if (file.isAs(item.status)) written.set(file.entry, done);
        else changed(file.entry, state, 'it changed while it was read');
        file = undefined;
      }
    }
    return written;
  }

  private count(bytes: number): void {
    this.readBytes += bytes;
    if (this.readBytes > this.settings.maxBytes)
      throw new ManifestRefused(`more than ${this.settings.maxBytes} bytes of files`);
  }
}

class OpenFile {
  private end = 0;
  private hasGrown = false;

  constructor(
    readonly entry: ScannedEntry,
    private readonly begun: FileStatus,
  ) {}

  /** False for bytes that somebody has added since it was begun: it is another file now. */
  takes(offset: number, length: number, state: State): boolean {
    this.hasGrown ||= offset + length > this.begun.size;
    if (offset < this.end || length < 1 || (this.hasGrown && state === 'frozen'))
      throw new ProtocolViolation('READ_MANY: a block out of place');
    this.end = offset + length;
    return !this.hasGrown;
  }

  /** The same before, at the beginning and at the end. */
  isAs(ended: FileStatus): boolean {
    const isSame = [this.begun, ended].every(
      ({ size, modifiedAtNs, changedAtNs }) =>
        size === this.entry.size &&
        modifiedAtNs === this.entry.modifiedAtNs &&
        changedAtNs === this.entry.changedAtNs,
    );
    return isSame && !this.hasGrown;
  }
}

function changed({ path }: ScannedEntry, state: State, what: string): void {
  if (state === 'running') return;
  const name = JSON.stringify(Buffer.from(path, 'latin1').toString().slice(0, 200));
  throw new ManifestRefused(`/${name.slice(1, -1)}: ${what}`);
}

const bytesOf = (entries: readonly ScannedEntry[]): number =>
  entries.reduce((sum, { size }) => sum + size, 0);

/** Files, each once: of several names the first. */
function firstNames(entries: readonly ScannedEntry[]): ScannedEntry[] {
  const seen = new Set<string>();
  return entries.filter(({ type, links, identity }) => {
    if (type !== 'file') return false;
    if (links < 2) return true;
    const first = !seen.has(identity);
    seen.add(identity);
    return first;
  });
}

async function writeManifest(
  store: ChunkStore,
  base: Base,
  whiteouts: readonly string[],
  { entries }: ScannedTree,
  contents: Contents,
) {
  const writer = new ManifestWriter(store);
  for (const path of whiteouts) add(writer, { ...NOTHING, type: 'whiteout', path });
  const names = new Map<string, string>();
  for (const entry of entries) {
    const { type, links, identity, path } = entry;
    const first = type === 'file' && links > 1 ? names.get(identity) : undefined;
    if (first !== undefined) {
      add(writer, { ...NOTHING, type: 'hardlink', path, target: first });
      continue;
    }
    if (type === 'file' && links > 1) names.set(identity, path);
    add(writer, manifestEntry(entry, contents.get(path)));
  }
  return writer.finish(base);
}

/** What a sandbox says of its files is checked like anything that it says. */
function add(writer: ManifestWriter, entry: ManifestEntry): void {
  if (entry.type === 'file' && !entry.content)
    throw new ManifestRefused(`a file that was not read: ${JSON.stringify(entry.path)}`);
  checkEntry(entry);
  writer.add(entry);
}

const NOTHING = {
  mode: 0,
  uid: 0,
  gid: 0,
  size: 0,
  modifiedAtNs: 0n,
  target: '',
  attributes: [],
  content: undefined,
} as const;

export function manifestEntry(
  entry: ScannedEntry,
  content: FileContent | undefined,
): ManifestEntry {
  const { type, mode, uid, gid, size, modifiedAtNs, path, target, attributes } = entry;
  return { type, mode, uid, gid, size, modifiedAtNs, path, target, attributes, content };
}
