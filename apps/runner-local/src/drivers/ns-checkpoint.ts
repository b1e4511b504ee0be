import { createHash, randomBytes } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, type NativeCheckpoint, type SandboxId } from '@vmux/runner-kit';
import type { NsBase } from './ns-base';
import type { NsFreezer } from './ns-cgroup';
import type { NsDiskFacts, NsDisks } from './ns-checkpoint-store';
import { runProgram } from './ns-launcher';
import { cgroupNameOf, isAlive, keyOf, type NsState, ownProcess } from './ns-store';

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
  constructor(private readonly disks: NsDisks) {}

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
    const [pid] = (await readFile(join(directory, 'pid'), 'utf8')).split(' ');
    const sync = () => runProgram('sync', ['-f', `/proc/${pid}/root`], signal);
    const facts = await factsOf(state, directory);
    const stood = await freezer.isFrozen(cgroup);
    if (stood) {
      await sync();
      return this.disks.keep(key, ref, facts);
    }
    // Most of what is to be written is written while it goes on: it stands still for the rest alone.
    await sync();
    const still = join(directory, STILL);
    await writeFile(still, await ownProcess());
    try {
      await freezer.set(cgroup, true, signal);
      await sync();
      return await this.disks.keep(key, ref, facts);
    } finally {
      await freezer.set(cgroup, false);
      await rm(still, { force: true });
    }
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

export const treesOf = ({ trees }: NsBase): readonly string[] => trees.map(({ target }) => target);

async function factsOf(
  { trees = [], image = null, createdAtMs }: NsState,
  directory: string,
): Promise<NsDiskFacts> {
  const sinceNs = await readFile(join(directory, SINCE), 'utf8').catch(
    (fault: NodeJS.ErrnoException) => {
      // Its runner was killed while it began: a little early is not wrong.
      if (fault.code === 'ENOENT') return `${createdAtMs}000000`;
      throw fault;
    },
  );
  return { trees, image, sinceNs };
}

const refOf = ({ sessionId, epoch, instance }: SandboxId, name: string): string => {
  const sum = createHash('sha256').update(JSON.stringify([epoch, instance, name]));
  return `${sessionId}.${sum.digest('hex').slice(0, 16)}`;
};
