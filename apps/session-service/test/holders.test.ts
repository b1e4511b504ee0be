import { join } from 'node:path';
import type { Checkpoint, Order } from '@vmux/events';
import { sessionIdOf } from '@vmux/events';
import { type SandboxDriver, startRunner } from '@vmux/runner-kit';
import { releaseAll, temporaryDirectory, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Stack,
  startRunner as startFakeRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Client, factsOf, historyOf } from './client';

let stack: Stack;
let client: Client;
let present: FakeRunner;

beforeAll(async () => {
  stack = await startStack();
  await startService(stack);
  client = new Client(stack.bus);
  present = startFakeRunner(stack, { runnerId: 'present' });
});
afterAll(releaseAll);

const has = (sessionId: string, type: string, times = 1) =>
  until(
    async () =>
      (await historyOf(stack.store, sessionId)).filter((each) => each === type).length >= times,
    { timeoutMs: 30_000 },
  );

/** A session with a checkpoint that its runner has in its own form, and that is lost. */
async function lostWithCheckpoint(name: string, holder: FakeRunner) {
  const { sessionId } = await client.create(name);
  await has(sessionId, 'SandboxStarted');
  const sandbox = holder.sandboxOf(sessionId);
  const checkpointId = `c${name.length}00000000001`.slice(0, 13);
  const taken = new Promise<Order>((resolve) => {
    holder.acts.TakeCheckpoint = (order) => resolve(order);
  });
  await client.ask('TakeCheckpoint', sessionId, { checkpointId, name: null });
  await taken;
  const checkpoint: Checkpoint = {
    ...{ checkpointId, name: null, epoch: 1, bytes: 1, newBytes: 1 },
    ...{ artifact: 'a'.repeat(64), manifestDigest: 'b'.repeat(64) },
    base: { image: null, digest: null, distribution: null, architecture: 'x64' },
    native: { provider: 'ns', runnerId: holder.runnerId, ref: 'layer' },
  };
  await holder.report(sandbox, 'CheckpointTaken', { checkpoint });
  await holder.report(sandbox, 'SandboxLost', { evidence: { kind: 'probe', message: 'gone' } });
  await has(sessionId, 'SandboxLost');
  return { sessionId, checkpointId };
}

const rehydrate = (sessionId: string, checkpointId: string) =>
  client.ask('RehydrateSession', sessionId, {
    ...{ checkpointId, provider: null, allowBaseChange: false, force: false, replay: [] },
  });

const placedOn = async (sessionId: string): Promise<readonly unknown[]> =>
  (await factsOf(stack.store, sessionId, 'SandboxRequested')).map(
    (each) => (each as { readonly runnerId: string }).runnerId,
  );

describe('a runner that was away while sessions were deleted', () => {
  it('drops what it keeps for those, and nothing else', async () => {
    const [deleted, living] = [await client.create('deleted'), await client.create('living')];
    for (const { sessionId } of [deleted, living]) await has(sessionId, 'SandboxStarted');
    await client.ask('DeleteSession', deleted.sessionId, { force: true });
    await until(async () => present.ordersOf('DestroySandbox', deleted.sessionId).length > 0);
    await until(async () =>
      (await historyOf(stack.store, deleted.sessionId)).includes('SessionDeleted'),
    );
    const unknown = sessionIdOf('unknown', 'nobody', 'k'.repeat(64), 0);
    const kept = new Set([deleted.sessionId, living.sessionId, unknown]);
    const messages: string[] = [];
    const back = await startRunner({
      runnerId: 'back',
      drivers: [keeping(kept)],
      bus: stack.bus,
      journalDirectory: join(temporaryDirectory('journal'), 'journal'),
      maxSandboxes: 1,
      collectEveryMs: 100,
      log: (message) => messages.push(message),
    });
    try {
      await until(() => kept.size < 3);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect([...kept]).toEqual([living.sessionId, unknown]);
      expect(messages).toContain('dropped the checkpoints of a deleted session');
      await client.ask('DeleteSession', living.sessionId, { force: true });
      await until(() => kept.size < 2, { timeoutMs: 20_000 });
      expect([...kept]).toEqual([unknown]);
    } finally {
      await back.stop();
    }
  }, 60_000);
});

describe('a sandbox that begins with a checkpoint', () => {
  it('goes to the runner that has it in its own form, though another would be chosen', async () => {
    const { sessionId, checkpointId } = await lostWithCheckpoint('near', present);
    const other = startFakeRunner(stack, { runnerId: 'another' });
    await until(async () => {
      const { sessionId: fresh } = await client.create('fresh');
      return (await placedOn(fresh)).includes('another');
    });
    await rehydrate(sessionId, checkpointId);
    await has(sessionId, 'SandboxStarted', 2);
    expect(await placedOn(sessionId)).toEqual(['present', 'present']);
    expect(other.ordersOf('CreateSandbox', sessionId)).toEqual([]);
  }, 60_000);
});

/** A driver of no sandboxes that keeps a checkpoint for each of these sessions. */
function keeping(kept: Set<string>): SandboxDriver {
  const no = async () => {
    throw new Error('nothing is made here');
  };
  return {
    ...{ provider: 'keeper', create: no, adopt: no, openPipe: no, suspend: no, resume: no },
    ...{ checkpoint: no, restore: no, destroy: no, probe: no },
    capabilities: async () => ({ available: true, reason: null, offered: [], missing: {} }),
    list: async () => [],
    checkpoints: async () => [...kept].map((sessionId) => ({ ref: sessionId, sessionId })),
    forget: async (ref) => void kept.delete(ref),
    close: async () => undefined,
  };
}
