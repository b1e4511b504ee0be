import { type Order, Refusal } from '@vmux/events';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import type { SandboxDriver, SandboxId } from '../src/driver';
import { Creations } from '../src/work/creations';
import { OrderDesk } from '../src/work/order-desk';
import type { Reporter } from '../src/work/reporter';
import { RunnerJournal } from '../src/work/runner-journal';
import type { Held, Sandboxes } from '../src/work/sandboxes';
import { Setup } from '../src/work/setup';

afterAll(releaseAll);

const id: SandboxId = { sessionId: 'late-1111', epoch: 1, instance: 'i1' };

/** A desk that has just been opened, over one sandbox, with a history that has moved on. */
async function deskOver(state: { isSuspended: boolean; isHeld?: boolean }) {
  const driver = {
    provider: 'ns',
    suspend: async () => {
      state.isSuspended = true;
    },
    resume: async () => {
      state.isSuspended = false;
    },
    capabilities: async () => ({ available: true, reason: null, offered: ['checkpoint'] }),
    checkpoint: async () => ({ ref: 'kept', bytes: 1 }),
    readCheckpoint: async () => undefined,
    probe: async () => ({ state: state.isSuspended ? 'suspended' : 'running' }),
  } as unknown as SandboxDriver;
  const trees = {
    hold: async () => {
      state.isHeld = true;
    },
    thaw: async () => {
      state.isHeld = false;
    },
  };
  const worker = { client: async () => ({ trees, states: async () => [] }) };
  const held = { id, driver, worker } as unknown as Held;
  const sandboxes = { find: () => held, drivers: [driver], allKnown: true } as unknown as Sandboxes;
  const reported: string[] = [];
  const reporter = {
    report: async ({ type }: { type: string }) => {
      reported.push(type);
      throw new Refusal('out_of_order', 'the history has moved on');
    },
  } as unknown as Reporter;
  const { signal } = new AbortController();
  const journal = await RunnerJournal.at(temporaryDirectory('journal'));
  const setup = new Setup({ cache: undefined, log });
  const creations = new Creations(signal);
  const desk = new OrderDesk({
    ...{ runnerId: 'local', sandboxes, reporter, journal, artifacts: undefined, setup, creations },
    ...{ log, signal },
  });
  return { desk, reported };
}

const log = () => undefined;
const order = (type: 'SuspendSandbox' | 'ResumeSandbox', request: number): Order => ({
  ...{ type, orderId: `${type} ${request}`, runnerId: 'local', data: { request } },
  ...id,
});

test('a late order to suspend, carried out by a runner that was started again, freezes nothing for ever', async () => {
  const state = { isSuspended: false };
  const { desk, reported } = await deskOver(state);
  await desk.take(order('SuspendSandbox', 3));
  expect(reported).toEqual(['SandboxSuspended']);
  expect(state.isSuspended).toBe(false);
});

test('a late order to resume leaves what was suspended since at rest', async () => {
  const state = { isSuspended: true };
  const { desk, reported } = await deskOver(state);
  await desk.take(order('ResumeSandbox', 5));
  expect(reported).toEqual(['SandboxResumed']);
  expect(state.isSuspended).toBe(true);
});

test('a late order to take a checkpoint that holds its sandbox lets it go on', async () => {
  const state = { isSuspended: false, isHeld: false };
  const { desk, reported } = await deskOver(state);
  const data = { checkpointId: 'c000000000001', hold: true };
  await desk.take({ ...order('SuspendSandbox', 1), type: 'TakeCheckpoint', data });
  expect(reported).toEqual(['CheckpointTaken']);
  expect(state.isHeld).toBe(false);
});
