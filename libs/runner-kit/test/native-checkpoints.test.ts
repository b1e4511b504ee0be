import type { Checkpoint } from '@vmux/events';
import type { SandboxDriver, SandboxSpec } from '../src/driver';
import { DriverRefused, DriverUnavailable, SnapshotUnusable } from '../src/errors';
import { NativeCheckpoints } from '../src/work/native-checkpoints';
import type { Held } from '../src/work/sandboxes';

const id = { sessionId: 'web-0a1b', epoch: 2, instance: 'i' };
const spec: SandboxSpec = {
  id,
  limits: { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 64 },
  image: null,
  egress: false,
  gpu: null,
};
const checkpoint = (pool: string | undefined, runnerId = 'one'): Checkpoint => ({
  ...{ checkpointId: 'c000000000001', name: null, epoch: 1, artifact: 'a'.repeat(64) },
  ...{ manifestDigest: 'b'.repeat(64), bytes: 1, newBytes: 1 },
  native: { provider: 'cloud', runnerId, ref: 'image', ...(pool === undefined ? {} : { pool }) },
  base: { image: null, digest: null, distribution: null, architecture: 'x86_64' },
});

/** A provider with snapshots that does what the test says. */
class Cloud {
  readonly restored: string[] = [];
  readonly forgotten: string[] = [];
  restoring: () => Promise<void> = async () => undefined;
  taking: () => Promise<string> = async () => 'image';

  readonly driver = {
    provider: 'cloud',
    capabilities: async () => ({ available: true, offered: [], missing: {}, pool: 'mine' }),
    restore: async (_: SandboxSpec, { ref }: { readonly ref: string }) => {
      this.restored.push(ref);
      await this.restoring();
    },
    snapshot: async () => ({ ref: await this.taking(), bytes: 0 }),
    checkpoints: async () => [],
    forget: async (ref: string) => void this.forgotten.push(ref),
  } as unknown as SandboxDriver;

  get held(): Held {
    return { id, driver: this.driver } as Held;
  }
}

describe('A provider’s snapshots', () => {
  const said: string[] = [];
  const opened = (runnerId: string) =>
    new NativeCheckpoints(
      { runnerId, log: (message) => said.push(message), signal: new AbortController().signal },
      null,
    );
  beforeEach(() => said.splice(0));

  it('are restored by every runner of the pool, and by nobody else', async () => {
    const cloud = new Cloud();
    const other = opened('two');
    expect(await other.restore(cloud.driver, spec, checkpoint('mine'), {})).toBe(true);
    expect(await other.restore(cloud.driver, spec, checkpoint('theirs'), {})).toBe(false);
    expect(await other.restore(cloud.driver, spec, checkpoint(undefined), {})).toBe(false);
    const elsewhere = { ...cloud.driver, provider: 'ns' };
    expect(await other.restore(elsewhere, spec, checkpoint('mine'), {})).toBe(false);
    expect(cloud.restored).toEqual(['image']);
  });

  it('give way to the portable form when they are gone, which is said', async () => {
    const cloud = new Cloud();
    cloud.restoring = async () => {
      throw new DriverRefused('unsupported', 'gone');
    };
    expect(await opened('one').restore(cloud.driver, spec, checkpoint('mine'), {})).toBe(false);
    expect(said).toEqual(['a checkpoint is restored from its portable form']);
  });

  it('are not tried again when a sandbox cannot be made of them', async () => {
    const cloud = new Cloud();
    cloud.restoring = async () => {
      throw new DriverUnavailable('it does not start');
    };
    const native = opened('one');
    const first = native.restore(cloud.driver, spec, checkpoint('mine'), {});
    await expect(first).rejects.toBeInstanceOf(SnapshotUnusable);
    expect(await native.restore(cloud.driver, spec, checkpoint('mine'), {})).toBe(false);
    expect(cloud.restored).toEqual(['image']);
  });

  it('are part of the checkpoint only if they were taken', async () => {
    const cloud = new Cloud();
    const taken = opened('one').alongside(cloud.held);
    await taken.take?.(1n);
    expect(await taken.kept()).toEqual({
      ...{ provider: 'cloud', runnerId: 'one', ref: 'image', pool: 'mine' },
    });
    cloud.taking = async () => {
      throw new DriverUnavailable('no snapshot now');
    };
    const failed = opened('one').alongside(cloud.held);
    await failed.take?.(1n);
    expect(await failed.kept()).toBeNull();
    expect(said).toEqual(['a checkpoint is kept in its portable form alone']);
  });

  it('are dropped when the portable form of the same moment came to nothing', async () => {
    const cloud = new Cloud();
    const native = opened('one');
    const taken = native.alongside(cloud.held);
    await taken.take?.(1n);
    taken.drop();
    await new Promise<void>((resolve) => native.later(async () => resolve()));
    expect(cloud.forgotten).toEqual(['image']);
  });
});
