import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArtifactDirectory, type ChunkStore } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import type { SandboxDriver } from '../driver';
import { baseOf } from '../work/base-of';
import { FileIndex } from '../work/checkpoint-index';
import { removedBy } from '../work/removed-by';
import { restoreCheckpoint } from '../work/restore-checkpoint';
import { takeCheckpoint } from '../work/take-checkpoint';
import type { MadeOf } from '../work/unlike';
import type { Bench, Opened } from './bench';

/** The store, and what a runner does with it, on sandboxes of the driver under test. */
export class CheckpointBench {
  #root: string | undefined;
  #artifacts: ArtifactDirectory | undefined;

  constructor(readonly bench: Bench) {}

  async open(): Promise<void> {
    this.#root = await mkdtemp(join(tmpdir(), 'vmux-contract-store-'));
    this.#artifacts = await ArtifactDirectory.at(this.#root);
  }

  async close(): Promise<void> {
    if (this.#root) await rm(this.#root, { recursive: true, force: true });
  }

  get storeDirectory(): string {
    if (!this.#root) throw new Error('the store is not open');
    return this.#root;
  }

  get store() {
    if (!this.#artifacts) throw new Error('the store is not open');
    return this.#artifacts.chunks;
  }

  async take(
    { id, client }: Opened,
    more: {
      index?: FileIndex;
      hold?: boolean;
      signal?: AbortSignal;
      driver?: SandboxDriver;
      /** What the sandbox was made of. */
      over?: Checkpoint;
      alongside?: (sinceNs: bigint) => Promise<void>;
    } = {},
  ): Promise<Checkpoint> {
    const signal = more.signal ?? new AbortController().signal;
    const base = await baseOf(client.files, null, signal);
    const taken = await takeCheckpoint({
      client,
      store: this.store,
      index: more.index ?? new FileIndex(),
      base,
      removed: async () => [
        ...((await (more.driver ?? this.bench.driver).removed?.(id)) ?? []),
        ...(await removedBy(this.store, more.over?.artifact ?? null)),
      ],
      alongside: more.alongside,
      maxBytes: 2 ** 33,
      hold: more.hold ?? false,
      signal,
    });
    const checkpointId = `c-${randomBytes(4).toString('hex')}`;
    return { checkpointId, name: null, epoch: id.epoch, ...taken, native: null, base };
  }

  async restore(
    checkpoint: Checkpoint,
    into: Opened,
    more: {
      index?: FileIndex;
      allowBaseChange?: boolean;
      present?: MadeOf;
      store?: ChunkStore;
    } = {},
  ): Promise<string> {
    const { signal } = new AbortController();
    return restoreCheckpoint(checkpoint, {
      client: into.client,
      store: more.store ?? this.store,
      present: more.present,
      index: more.index ?? new FileIndex(),
      base: await baseOf(into.client.files, null, signal),
      allowBaseChange: more.allowBaseChange ?? false,
      signal,
    });
  }
}
