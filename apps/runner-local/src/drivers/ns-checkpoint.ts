import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, type NativeCheckpoint, type SandboxId } from '@vmux/runner-kit';
import type { NsBase } from './ns-base';
import type { NsFreezer } from './ns-cgroup';
import type { NsDiskFacts, NsDisks } from './ns-checkpoint-store';
import { runProgram } from './ns-launcher';
import { cgroupNameOf, isAlive, keyOf, type NsState, ownProcess, readIfThere } from './ns-store';

/** In a sandbox's directory: since when its files are the workload's, in nanoseconds since 1970. */
export const SINCE = 'since';
/** There while it stands still for a checkpoint alone: who will let it go on. */
const STILL = 'still';

export interface Standing {
  readonly state: NsState;
  readonly directory: string;
  /** The same name of the same sandbox is the same checkpoint. */
  readonly name: string | undefined;
}

/** Clones of disks, taken while everything in the sandbox stands still. */
export class NsCheckpoints {
  constructor(
    private readonly disks: NsDisks,
    private readonly launcherPath: string,
  ) {}

  async take(
    { state, directory, name }: Standing,
    freezer: NsFreezer,
    signal?: AbortSignal,
  ): Promise<NativeCheckpoint> {
    if (this.disks.whyNot !== undefined) throw new DriverRefused('unsupported', this.disks.whyNot);
    const key = keyOf(state.id);
    const cgroup = cgroupNameOf(key);
    const ref = refOf(state.id, name ?? randomBytes(16).toString('hex'));
    const before = await this.disks.find(ref);
    if (before) return before;
    const [pid = ''] = readFileSync(join(directory, 'pid'), 'utf8').split(' ');
    const facts = factsOf(state, directory);
    const clone = async (disk: string, draft: string, still: readonly string[]) => {
      const args = ['clone', pid, String(process.pid), disk, draft, ...still];
      return Number(await runProgram(this.launcherPath, args, signal));
    };
    if (await freezer.isFrozen(cgroup))
      return this.disks.keep(key, ref, facts, (disk, draft) => clone(disk, draft, []));
    return this.disks.keep(key, ref, facts, async (disk, draft) => {
      const still = join(directory, STILL);
      writeFileSync(still, await ownProcess());
      try {
        return await clone(disk, draft, [freezer.directoryOf(cgroup)]);
      } finally {
        // It has gone on by itself, unless the program was killed.
        await freezer.set(cgroup, false);
        rmSync(still, { force: true });
      }
    });
  }

  /** Lets go on what stands still for a checkpoint whose taker was killed. */
  static async letGoOn(key: string, directory: string, freezer: NsFreezer): Promise<void> {
    const still = join(directory, STILL);
    const taker = await readFile(still, 'utf8').catch(() => undefined);
    if (taker === undefined || (await isAlive(taker))) return;
    await freezer.set(cgroupNameOf(key), false);
    await rm(still, { force: true });
  }

  /** The checkpoint, if it is here and fits the base; says why when it does not. */
  async forBase(
    { ref }: NativeCheckpoint,
    base: NsBase,
  ): Promise<NativeCheckpoint & Pick<NsDiskFacts, 'sinceNs'>> {
    const found = await this.disks.find(ref);
    if (!found) throw new DriverRefused('unsupported', 'this runner does not have the checkpoint');
    if (found.trees.join() !== treesOf(base).join())
      throw new DriverRefused('unsupported', 'the checkpoint is of another base');
    return found;
  }
}

const SETTLE_AFTER_MS = 2_000;

/**
 * Has what was kept written to the disk for good, a little later and all of it at once: a sync holds up
 * whatever else is to be written, such as the sandbox that is made out of it next. Until then, and if it never
 * comes to that, it counts for as long as the machine runs.
 */
export class Settling {
  readonly #refs = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #underway: Promise<void> = Promise.resolve();

  constructor(private readonly disks: NsDisks) {}

  later(ref: string): void {
    this.#refs.add(ref);
    this.#timer ??= setTimeout(() => this.#settle(), SETTLE_AFTER_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    this.#settle();
    await this.#underway;
  }

  #settle(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const refs = [...this.#refs];
    this.#refs.clear();
    this.#underway = this.#underway.then(() => this.disks.settle(refs)).catch(() => undefined);
  }
}

export const treesOf = ({ trees }: NsBase): readonly string[] => trees.map(({ target }) => target);

function factsOf(
  { trees = [], image = null, createdAtMs }: NsState,
  directory: string,
): NsDiskFacts {
  // Without one its runner was killed while it began: a little early is not wrong.
  const sinceNs = readIfThere(join(directory, SINCE)) ?? `${createdAtMs}000000`;
  return { trees, image, sinceNs };
}

const refOf = ({ sessionId, epoch, instance }: SandboxId, name: string): string => {
  const sum = createHash('sha256').update(JSON.stringify([epoch, instance, name]));
  return `${sessionId}.${sum.digest('hex').slice(0, 16)}`;
};
