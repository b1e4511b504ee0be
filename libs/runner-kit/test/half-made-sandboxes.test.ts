import type { Order } from '@vmux/events';
import { releaseAll, temporaryDirectory, until } from '@vmux/testing';
import type { SandboxDriver, SandboxId, SandboxSpec } from '../src/driver';
import { DriverRefused, DriverUnavailable } from '../src/errors';
import { Creations } from '../src/work/creations';
import { OrderDesk } from '../src/work/order-desk';
import type { Reporter } from '../src/work/reporter';
import { RunnerJournal } from '../src/work/runner-journal';
import { Sandboxes } from '../src/work/sandboxes';
import { Setup } from '../src/work/setup';

afterAll(releaseAll);

const log = () => undefined;
const resources = { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 64 };
const order = {
  ...{ type: 'CreateSandbox', orderId: 'o1', runnerId: 'local', sessionId: 'half-1111', epoch: 1 },
  ...{ instance: null, data: { provider: 'docker', spec: { resources }, restore: null } },
} as unknown as Order;

/** A desk over an engine that fails like this when it is asked for a sandbox, and is away for a while then. */
async function deskOver(fault: Error) {
  const engine = { has: new Set<string>(), destroyed: [] as SandboxId[], failures: 2 };
  const driver = {
    provider: 'docker',
    capabilities: async () => ({ available: true, reason: null, offered: [] }),
    list: async () => [],
    create: async ({ id }: SandboxSpec) => {
      if (fault instanceof DriverUnavailable) engine.has.add(id.instance);
      throw fault;
    },
    destroy: async (id: SandboxId) => {
      if (engine.failures-- > 0) throw new DriverUnavailable('the engine is away');
      engine.has.delete(id.instance);
      engine.destroyed.push(id);
    },
  } as unknown as SandboxDriver;
  const reported: string[] = [];
  const reporter = {
    report: async ({ type }: { type: string }) => void reported.push(type),
  } as unknown as Reporter;
  const stop = new AbortController();
  const { signal } = stop;
  const journal = await RunnerJournal.at(temporaryDirectory('journal'));
  const setup = new Setup({ cache: undefined, log });
  const sandboxes = new Sandboxes({ drivers: [driver], reporter, journal, log, signal });
  await sandboxes.adoptAll();
  const creations = new Creations(signal);
  const desk = new OrderDesk({
    ...{ runnerId: 'local', sandboxes, reporter, journal, artifacts: undefined, setup, creations },
    ...{ log, signal },
  });
  const close = async () => {
    stop.abort();
    await sandboxes.close();
  };
  return { desk, engine, reported, close };
}

test('a sandbox whose engine went away while it was made is destroyed once the engine is back', async () => {
  const { desk, engine, reported, close } = await deskOver(new DriverUnavailable('cut off'));
  await desk.take(order);
  expect(reported).toEqual(['SandboxFailed']);
  expect(engine.has.size).toBe(1);
  await until(() => engine.has.size === 0);
  await close();
});

test('a sandbox that was refused was never there, and nothing is destroyed for it', async () => {
  const fault = new DriverRefused('invalid', 'no such image');
  const { desk, engine, reported, close } = await deskOver(fault);
  await desk.take(order);
  expect(reported).toEqual(['SandboxFailed']);
  await close();
  expect(engine).toMatchObject({ failures: 2, destroyed: [] });
});
