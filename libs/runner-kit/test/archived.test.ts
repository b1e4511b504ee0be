import { ArtifactDirectory } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import type { OpenedCheckpoint, SandboxDriver } from '../src/driver';
import { NativeCheckpoints } from '../src/work/native-checkpoints';
import type { TakenTree } from '../src/work/take-checkpoint';
import { lyingSandbox, scanOf } from './lying-sandbox';

afterAll(releaseAll);

const id = { sessionId: 'kept-1111', epoch: 1, instance: 'i1' };
const checkpoint: Checkpoint = {
  ...{ checkpointId: 'c1', name: null, epoch: 1, artifact: null, bytes: 1, newBytes: 0 },
  base: { image: null, digest: null, distribution: null, architecture: 'x86_64' },
  native: { provider: 'ns', runnerId: 'local', ref: 'ref' },
  manifestDigest: 'a'.repeat(64),
};

/** Archives a checkpoint whose sandbox is put away as `putAway` says. */
async function archiving(putAway: () => Promise<void>, tell: (taken: TakenTree) => Promise<void>) {
  const { native, driver, chunks, client, logged } = await archiver(putAway);
  const done = native.archive(driver, checkpoint, chunks, tell);
  return { done: done.finally(() => client.close()), logged };
}

async function archiver(putAway: () => Promise<void>) {
  const client = await lyingSandbox(scanOf([{ type: 'd', path: 'srv' }]), Buffer.alloc(0));
  const did: string[] = [];
  const driver = {
    provider: 'ns',
    checkpoints: async () => [{ ref: 'ref', sessionId: id.sessionId }],
    forget: async () => void did.push('forgotten'),
    readCheckpoint: async <T>(_from: unknown, read: (opened: OpenedCheckpoint) => Promise<T>) => {
      did.push('read');
      const result = await read({ id, client, takenAtMs: Date.now() });
      await putAway();
      return result;
    },
  } as unknown as SandboxDriver;
  const { chunks } = await ArtifactDirectory.at(temporaryDirectory('archived'));
  const logged: string[] = [];
  const log = (message: string) => logged.push(message);
  const { signal } = new AbortController();
  const native = new NativeCheckpoints({ runnerId: 'local', log, signal }, null);
  return { native, driver, chunks, client, logged, did };
}

describe('a checkpoint whose portable form is made', () => {
  it('is told of as soon as that is stored, before what it was read from is put away', async () => {
    const order: string[] = [];
    let told = () => {};
    const heard = new Promise<void>((resolve) => {
      told = resolve;
    });
    const putAway = async () => {
      await heard;
      order.push('put away');
    };
    const { done } = await archiving(putAway, async ({ artifact }) => {
      expect(artifact).toMatch(/^[0-9a-f]{64}$/);
      order.push('told');
      told();
    });
    await done;
    expect(order).toEqual(['told', 'put away']);
  });

  it('stays told when that cannot be put away, which is logged', async () => {
    const putAway = () => Promise.reject(new Error('busy'));
    const { done, logged } = await archiving(putAway, async () => undefined);
    await done;
    expect(logged).toHaveLength(1);
  });

  it('fails when nobody could be told', async () => {
    const refused = new Error('the history has moved on');
    const { done } = await archiving(
      async () => undefined,
      () => Promise.reject(refused),
    );
    await expect(done).rejects.toBe(refused);
  });

  it('is made once for its session and for those that were forked from it', async () => {
    const { native, driver, chunks, client, did } = await archiver(async () => undefined);
    const told: TakenTree[] = [];
    const tell = async (taken: TakenTree) => void told.push(taken);
    const archives = [1, 2, 3].map(() => native.archive(driver, checkpoint, chunks, tell));
    await Promise.all(archives);
    client.close();
    expect(did).toEqual(['read']);
    expect(told).toEqual([told[0], told[0], told[0]]);
    expect(told[0]?.artifact).toMatch(/^[0-9a-f]{64}$/);
  });

  it('is made before what it is made of is dropped with its session', async () => {
    const { native, driver, chunks, client, did } = await archiver(async () => undefined);
    const tell = async () => void did.push('told');
    const archive = native.archive(driver, checkpoint, chunks, tell);
    await Promise.all([archive, native.forget([driver], id.sessionId)]);
    client.close();
    expect(did).toEqual(['read', 'told', 'forgotten']);
  });
});
