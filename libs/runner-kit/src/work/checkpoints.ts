import {
  ArtifactNotFound,
  type ArtifactStore,
  ChunkUnreadable,
  DigestMismatch,
  ManifestRefused,
} from '@vmux/artifacts';
import type { Base, Checkpoint } from '@vmux/events';
import type { CreateOptions, SandboxDriver, SandboxSpec } from '../driver';
import { DriverRefused, DriverUnavailable, SandboxError, SnapshotUnusable } from '../errors';
import { Bases, baseOf } from './base-of';
import { FileIndexes, indexKeyOf } from './file-indexes';
import { IndexFiles } from './index-files';
import { NativeCheckpoints } from './native-checkpoints';
import { pause } from './pause';
import { removedBy } from './removed-by';
import { restoreCheckpoint } from './restore-checkpoint';
import type { Origin, RunnerJournal } from './runner-journal';
import type { Held, Log } from './sandboxes';
import { type TakenTree, takeCheckpoint } from './take-checkpoint';
import type { MadeOf } from './unlike';

export interface CheckpointsSettings {
  readonly runnerId: string;
  readonly log: Log;
  readonly artifacts: ArtifactStore | undefined;
  readonly journal: RunnerJournal;
  /** For what is known of files across restarts. */
  readonly indexDirectory?: string;
  readonly signal: AbortSignal;
}

const MiB = 1024 * 1024;
const LEAST_ROOM = 4096 * MiB;
/** A driver may count disks otherwise than files do, or not at all. */
const ROOM_FACTOR = 4;
const CARRIED_WITHIN_MS = 60_000;
const LOOK_MS = 20;

/** The portable checkpoints of this runner's sandboxes: taken, and put into new ones. */
export class Checkpoints {
  private readonly indexes: FileIndexes;
  private readonly bases = new Bases();
  private readonly native: NativeCheckpoints;

  constructor(private readonly settings: CheckpointsSettings) {
    const { indexDirectory } = settings;
    const disk = indexDirectory === undefined ? null : new IndexFiles(indexDirectory);
    this.indexes = new FileIndexes(disk);
    this.native = new NativeCheckpoints(settings, disk);
  }

  /** A new sandbox: at once with the files of a checkpoint, where its driver has them. */
  async create(
    driver: SandboxDriver,
    spec: SandboxSpec,
    checkpoint: Checkpoint | null,
    options: CreateOptions,
  ): Promise<void> {
    if (checkpoint && (await this.native.restore(driver, spec, checkpoint, options))) return;
    await driver.create(spec, options);
  }

  /** What a sandbox was made of: found out once, before anything runs in it, and remembered. */
  async originOf(held: Held, image: string | null): Promise<Origin> {
    const { journal, signal } = this.settings;
    const known = await journal.originOf(held.id);
    if (known) return known;
    const look = async () => baseOf((await held.worker.client()).files, image, signal);
    const base = await this.bases.of(held.driver.provider, image, look, Date.now());
    return { base, restoredDigest: null };
  }

  /** Returns what belongs into the history; throws what `isFinal` tells apart. */
  async take(
    { id, driver, worker }: Held,
    { checkpointId, hold }: { readonly checkpointId: string; readonly hold: boolean },
  ): Promise<Checkpoint> {
    expectIsolation(driver);
    const { journal, signal } = this.settings;
    const origin = await journal.originOf(id);
    const native = await this.native.take(
      { id, driver, worker },
      { checkpointId, hold },
      origin?.base ?? UNKNOWN_BASE,
    );
    if (native) {
      if (hold) await this.untilCarried({ id, driver, worker });
      return native;
    }
    const store = this.store();
    const client = await worker.client();
    const { limits, madeOf = null } = await driver.adopt(id, { signal });
    const removedBefore = await removedBy(store, madeOf);
    const alongside = this.native.alongside({ id, driver, worker });
    const taken = await takeCheckpoint({
      client,
      store,
      index: await this.indexes.of(indexKeyOf(id)),
      base: origin?.base ?? UNKNOWN_BASE,
      removed: async () => [...((await driver.removed?.(id, { signal })) ?? []), ...removedBefore],
      alongside: alongside.take,
      maxBytes: Math.max(LEAST_ROOM, limits.diskMiB * ROOM_FACTOR * MiB),
      hold,
      signal,
    }).catch((error) => {
      alongside.drop();
      throw error;
    });
    this.native.later(() => this.indexes.keep(indexKeyOf(id)));
    if (hold) await this.untilCarried({ id, driver, worker });
    const base = origin?.base ?? UNKNOWN_BASE;
    const kept =
      (await alongside.kept()) ??
      (await this.native.keep({ id, driver, worker }, taken.artifact, store));
    return { checkpointId, name: null, epoch: id.epoch, ...taken, native: kept, base };
  }

  /** Puts the files back and says what was found. A repeat comes to the same. */
  async restore(
    held: Held,
    checkpoint: Checkpoint,
    image: string | null,
    allowBaseChange: boolean,
  ): Promise<Origin> {
    expectIsolation(held.driver);
    const { signal } = this.settings;
    const { base: taken, manifestDigest, native } = checkpoint;
    const { restoredFrom = null } = await held.driver.adopt(held.id, { signal });
    const isMadeOfIt = restoredFrom !== null && restoredFrom === native?.ref;
    const { keeper, snapshot } = held.driver;
    if (isMadeOfIt && !keeper && !snapshot) return { base: taken, restoredDigest: manifestDigest };
    const made: MadeOf = snapshot ? 'by its provider' : 'of its files';
    const present = isMadeOfIt ? made : undefined;
    const store = this.store();
    const { base } = present ? { base: taken } : await this.originOf(held, image);
    const client = await held.worker.client();
    const index = await this.indexes.of(indexKeyOf(held.id));
    try {
      const settings = { client, store, index, base, allowBaseChange, present, signal };
      return { base, restoredDigest: await restoreCheckpoint(checkpoint, settings) };
    } catch (error) {
      if (error instanceof SnapshotUnusable && native) this.native.spurn(native.ref);
      throw signal.aborted ? error : asDriverFault(error);
    }
  }

  /** The portable form of a checkpoint that this runner has in its driver's; `tell` hears when it is there. */
  async archive(
    driver: SandboxDriver,
    checkpoint: Checkpoint,
    tell: (taken: TakenTree) => Promise<void>,
  ): Promise<void> {
    await this.native.archive(driver, checkpoint, this.store(), tell);
  }

  /** Of a session that is no more. */
  forgetSession(drivers: readonly SandboxDriver[], sessionId: string): Promise<void> {
    return this.native.forget(drivers, sessionId);
  }

  forget({ id }: Held): Promise<void> {
    return this.indexes.forget(indexKeyOf(id));
  }

  private store() {
    const { artifacts } = this.settings;
    if (artifacts) return artifacts.chunks;
    throw new DriverRefused(
      'unsupported',
      'this runner has no artifact store: set VMUX_ARTIFACTS_DIR',
    );
  }

  /** Returns when what the sandbox has written before it stood still is in the log. */
  private async untilCarried({ worker }: Held): Promise<void> {
    const { signal } = this.settings;
    for (const since = Date.now(); ; await pause(LOOK_MS, signal)) {
      const client = await worker.client();
      const execs = await client.states({ signal });
      const owed = execs.filter(
        (x) => !x.released && worker.carriedTo(x.execId) < x.stdoutBytes + x.stderrBytes,
      );
      if (owed.length === 0) return;
      if (Date.now() - since > CARRIED_WITHIN_MS)
        throw new DriverUnavailable('the output before the checkpoint cannot be stored now');
    }
  }
}

/** Of a sandbox that an earlier version of this runner started. */
const UNKNOWN_BASE: Base = {
  image: null,
  digest: null,
  distribution: null,
  architecture: 'unknown',
};

/** What a restore says to whoever creates sandboxes: never, or try again. */
function asDriverFault(error: unknown): Error {
  if (error instanceof SandboxError) return error;
  const message = error instanceof Error ? error.message : String(error);
  const never =
    error instanceof ManifestRefused ||
    error instanceof ArtifactNotFound ||
    error instanceof DigestMismatch ||
    error instanceof ChunkUnreadable;
  return never
    ? new DriverRefused('invalid', message, { cause: error })
    : new DriverUnavailable(`the checkpoint cannot be read (${message})`, { cause: error });
}

/** Whether a checkpoint failed for good: anything that passes is tried again with the order. */
export const isFinal = (error: unknown): boolean =>
  !(error instanceof SandboxError) ||
  error.next === 'refuse' ||
  error.code === 'protocol_violation';

/** Where nothing is kept apart, its files are the machine's. */
function expectIsolation({ provider, isolates }: SandboxDriver): void {
  if (isolates === false)
    throw new DriverRefused(
      'unsupported',
      `${provider} sandboxes share the machine’s files: nothing of them is stored`,
    );
}
