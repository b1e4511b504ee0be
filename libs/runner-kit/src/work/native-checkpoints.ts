import { createHash } from 'node:crypto';
import type { ChunkStore } from '@vmux/artifacts';
import type { Base, Checkpoint } from '@vmux/events';
import type { CreateOptions, OpenedCheckpoint, SandboxDriver, SandboxSpec } from '../driver';
import { DriverRefused, SnapshotUnusable } from '../errors';
import type { ScannedEntry } from '../supervisor-tree-answers';
import { FileIndex } from './checkpoint-index';
import { FileIndexes } from './file-indexes';
import type { IndexFiles } from './index-files';
import { checkpointFiles } from './layer-stream';
import type { Held, Log } from './sandboxes';
import { type TakenTree, takeCheckpoint } from './take-checkpoint';

export interface NativeSettings {
  readonly runnerId: string;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Says so where it belongs into the history. */
type Tell = (taken: TakenTree) => Promise<void>;

const MiB = 1024 * 1024;
const MAX_ARCHIVED_BYTES = 1024 * 1024 * MiB;
/** Of one session; older ones are restored from their portable form. */
const KEPT_OF_A_SESSION = 8;
/** More than that are not worth waiting for. */
const MAX_WAITING = 32;
/** For so long a snapshot that was of no use is not tried again. */
const SPURNED_MS = 10 * 60_000;
const MAX_SPURNED = 1_000;
/** Children of a checkpoint ask for what their parent asked for: at once, or soon. */
const KNOWN_FOR_MS = 60 * 60_000;
const MAX_KNOWN = 256;

/** What the provider takes while the sandbox stands still for the portable form. */
export interface Alongside {
  /** Undefined where there is no such form: nothing is taken. */
  readonly take: ((sinceNs: bigint) => Promise<void>) | undefined;
  /** Where it is, once both forms are there: they are of one moment. */
  kept(): Promise<Checkpoint['native']>;
  /** The portable form came to nothing. */
  drop(): void;
}

/** Checkpoints in the form that a driver has of its own: taken and restored at once, whatever their size. */
export class NativeCheckpoints {
  private readonly indexes: FileIndexes;
  private archiving: Promise<unknown> = Promise.resolve();
  private keeping: Promise<unknown> = Promise.resolve();
  private waiting = 0;
  /** What was archived lately, and when. */
  private readonly archived = new Map<string, { readonly taken: TakenTree; readonly at: number }>();
  /** Snapshots that could not be restored, and when that was. */
  private readonly spurned = new Map<string, number>();

  constructor(
    private readonly settings: NativeSettings,
    disk: IndexFiles | null,
  ) {
    this.indexes = new FileIndexes(disk, () => new CloneIndex());
  }

  /** Undefined when the driver has no such form here: the portable one is taken instead. */
  async take(
    { id, driver, worker }: Held,
    { checkpointId, hold }: { readonly checkpointId: string; readonly hold: boolean },
    base: Base,
  ): Promise<Checkpoint | undefined> {
    const { runnerId, signal } = this.settings;
    if (!driver.readCheckpoint) return undefined;
    if (!(await driver.capabilities({ signal })).offered.includes('checkpoint')) return undefined;
    const { trees } = await worker.client();
    if (hold) await trees.hold({ signal });
    try {
      const { ref, bytes } = await driver.checkpoint(id, { name: checkpointId, signal });
      const native = { provider: driver.provider, runnerId, ref };
      const identity = { checkpointId, name: null, epoch: id.epoch, base };
      const manifestDigest = digestOf(native);
      return { ...identity, artifact: null, manifestDigest, bytes, newBytes: 0, native };
    } catch (error) {
      if (hold) await trees.thaw();
      if (error instanceof DriverRefused) return undefined;
      throw error;
    }
  }

  /**
   * Of a driver whose form is made out of the portable one: where it will be. It is made afterwards, one
   * after the other; until it is there, and if it never is, the portable one is restored.
   */
  async keep(
    { id, driver }: Held,
    artifact: string,
    store: ChunkStore,
  ): Promise<Checkpoint['native']> {
    const { runnerId, signal, log } = this.settings;
    if (!driver.keeper || this.waiting >= MAX_WAITING) return null;
    const keeper = await driver.keeper(id, artifact, { signal }).catch((error) => {
      log('a checkpoint is kept in its portable form alone', { ...id, reason: String(error) });
      return undefined;
    });
    if (!keeper) return null;
    const { ref } = keeper;
    this.later(async () => {
      await keeper.keep(checkpointFiles(store, artifact), { signal });
      await this.prune(driver, id.sessionId, ref);
    });
    return { provider: driver.provider, runnerId, ref };
  }

  /** Of a driver whose provider takes snapshots. One that fails leaves the portable form alone. */
  alongside({ id, driver }: Held): Alongside {
    const { runnerId, signal, log } = this.settings;
    let taking: Promise<string | undefined> = Promise.resolve(undefined);
    const take = async (sinceNs: bigint) => {
      taking = (async () => (await driver.snapshot?.(id, { sinceNs, signal }))?.ref)();
      await taking.catch((error) => {
        log('a checkpoint is kept in its portable form alone', { ...id, reason: String(error) });
        taking = Promise.resolve(undefined);
      });
    };
    const kept = async () => {
      const ref = await taking;
      if (ref === undefined) return null;
      this.later(() => this.prune(driver, id.sessionId, ref));
      const { pool } = await driver.capabilities({ signal });
      const native = { provider: driver.provider, runnerId, ref };
      return pool === undefined ? native : { ...native, pool };
    };
    const drop = () =>
      this.later(async () => {
        const ref = await taking;
        if (ref !== undefined) await driver.forget?.(ref);
      });
    return { take: driver.snapshot ? take : undefined, kept, drop };
  }

  /** The provider's snapshot is not what it should be: the portable form is used for a while. */
  spurn(ref: string): void {
    this.spurned.delete(ref);
    this.spurned.set(ref, Date.now());
    for (const oldest of this.spurned.keys()) {
      if (this.spurned.size <= MAX_SPURNED) break;
      this.spurned.delete(oldest);
    }
  }

  /** What nobody waits for, one after the other; what comes of it is worth having, not owed. */
  later(work: () => Promise<void>): void {
    const { signal, log } = this.settings;
    this.waiting += 1;
    this.keeping = this.keeping
      .then(work)
      .catch((error) => {
        if (!signal.aborted) log('nothing is kept to be faster with', { reason: String(error) });
      })
      .finally(() => {
        this.waiting -= 1;
      });
  }

  /** False when there is none here that fits: the sandbox is created and the portable form unpacked. */
  async restore(
    driver: SandboxDriver,
    spec: SandboxSpec,
    checkpoint: Checkpoint,
    options: CreateOptions,
  ): Promise<boolean> {
    const { native, bytes, artifact } = checkpoint;
    if (native?.provider !== driver.provider) return false;
    if (!(await this.isInReach(driver, native))) return false;
    const { ref } = native;
    if (Date.now() - (this.spurned.get(ref) ?? 0) < SPURNED_MS) return false;
    try {
      await driver.restore(spec, { ref, bytes }, options);
      return true;
    } catch (error) {
      if (error instanceof DriverRefused && artifact !== null) return this.doWithout(ref, error);
      if (!driver.snapshot || artifact === null || options.signal?.aborted) throw error;
      this.spurn(ref);
      throw new SnapshotUnusable(String(error), { cause: error });
    }
  }

  private doWithout(ref: string, { message: reason }: Error): false {
    this.settings.log('a checkpoint is restored from its portable form', { ref, reason });
    return false;
  }

  private async isInReach(
    driver: SandboxDriver,
    { runnerId, pool }: NonNullable<Checkpoint['native']>,
  ): Promise<boolean> {
    const { signal } = this.settings;
    if (pool === undefined) return runnerId === this.settings.runnerId;
    return (await driver.capabilities({ signal })).pool === pool;
  }

  /** The portable form, made out of the driver's; one after the other. Told as soon as it is durable. */
  archive(
    driver: SandboxDriver,
    checkpoint: Checkpoint,
    store: ChunkStore,
    tell: Tell,
  ): Promise<void> {
    const mine = this.archiving.then(() => this.archiveNow(driver, checkpoint, store, tell));
    this.archiving = mine.catch(() => undefined);
    return mine;
  }

  /** The session is no more, or was never here. What its children still need of it is made first. */
  async forget(drivers: readonly SandboxDriver[], sessionId: string): Promise<void> {
    await this.archiving;
    await this.indexes.forget(sessionId);
    for (const driver of drivers)
      for (const kept of (await driver.checkpoints?.()) ?? [])
        if (kept.sessionId === sessionId) await driver.forget?.(kept.ref);
  }

  private async archiveNow(
    driver: SandboxDriver,
    { native, base, bytes }: Checkpoint,
    store: ChunkStore,
    tell: Tell,
  ): Promise<void> {
    const { signal, log } = this.settings;
    signal.throwIfAborted();
    if (!native || !driver.readCheckpoint)
      throw new DriverRefused('unsupported', 'the checkpoint has no form of this driver');
    const { ref } = native;
    const before = this.archived.get(ref);
    if (before && Date.now() - before.at < KNOWN_FOR_MS) return tell(before.taken);
    const known = (await driver.checkpoints?.()) ?? [];
    const sessionId = known.find((each) => each.ref === ref)?.sessionId;
    if (sessionId === undefined)
      throw new DriverRefused('unsupported', 'the runner no longer has the checkpoint');
    const index = await this.indexes.of(sessionId);
    let told: Promise<void> | undefined;
    const read = async ({ id, client, takenAtMs }: OpenedCheckpoint) => {
      const taken = await takeCheckpoint({
        client,
        store,
        index,
        base,
        removed: async () => (await driver.removed?.(id, { signal })) ?? [],
        maxBytes: MAX_ARCHIVED_BYTES,
        hold: false,
        takenAtNs: BigInt(Math.floor(takenAtMs)) * 1_000_000n,
        signal,
      });
      this.remember(ref, taken);
      told = tell(taken);
      // Heard below, whatever becomes of the rest.
      told.catch(() => undefined);
    };
    try {
      await driver.readCheckpoint({ ref, bytes }, read, { signal });
    } catch (error) {
      if (!told) throw error;
      log('a checkpoint is stored, but not all that it was made of is put away', {
        sessionId,
        reason: String(error),
      });
    }
    await told;
    this.later(async () => {
      await this.indexes.keep(sessionId);
      await this.prune(driver, sessionId, ref);
    });
  }

  private remember(ref: string, taken: TakenTree): void {
    this.archived.delete(ref);
    this.archived.set(ref, { taken, at: Date.now() });
    const [oldest] = this.archived.keys();
    if (oldest !== undefined && this.archived.size > MAX_KNOWN) this.archived.delete(oldest);
  }

  /** Those before the one that was just archived are archived too. */
  private async prune(driver: SandboxDriver, sessionId: string, ref: string): Promise<void> {
    const mine = ((await driver.checkpoints?.()) ?? []).filter(
      (each) => each.sessionId === sessionId,
    );
    const upTo = mine.findIndex((each) => each.ref === ref) + 1;
    for (const old of mine.slice(0, Math.max(0, upTo - KEPT_OF_A_SESSION)))
      await driver.forget?.(old.ref);
  }
}

/** Every clone of a disk is another device, on which the same files have the same numbers. */
class CloneIndex extends FileIndex {
  protected override identityOf({ identity }: ScannedEntry): string {
    return identity.slice(8);
  }
}

/** A clone is what it was made of: what is compared is which one it is. */
const digestOf = ({ provider, runnerId, ref }: NonNullable<Checkpoint['native']>): string =>
  createHash('sha256').update(`native ${provider} ${runnerId} ${ref}`).digest('hex');
