import type { Order } from '@vmux/events';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import type { SandboxDriver, SandboxId } from '../src/driver';
import { DriverUnavailable } from '../src/errors';
import { Creations } from '../src/work/creations';
import { OrderDesk } from '../src/work/order-desk';
import type { Reporter } from '../src/work/reporter';
import { RunnerJournal } from '../src/work/runner-journal';
import { Sandboxes } from '../src/work/sandboxes';
import { Setup } from '../src/work/setup';

afterAll(releaseAll);

const log = () => undefined;
const id: SandboxId = { sessionId: 'stays-1111', epoch: 1, instance: 'i1' };
const order: Order = {
  ...{ type: 'DestroySandbox', orderId: 'o1', runnerId: 'local', ...id },
  data: { graceMs: 0, drain: false },
};

test('a sandbox whose engine was away when it was to be destroyed is not said to be released before it is', async () => {
  const engine = { isAway: true, has: true };
  const driver = {
    provider: 'docker',
    capabilities: async () => ({ available: true, reason: null, offered: [] }),
    list: async () => [],
    probe: async () => ({ state: 'suspended' }),
    openPipe: async () => {
      throw new DriverUnavailable('nobody is there');
    },
    destroy: async () => {
      if (engine.isAway) throw new DriverUnavailable('the engine is away');
      engine.has = false;
    },
  } as unknown as SandboxDriver;
  const reported: string[] = [];
  const reporter = {
    report: async ({ type }: { type: string }) => void reported.push(type),
  } as unknown as Reporter;
  const stop = new AbortController();
  const { signal } = stop;
  const journal = await RunnerJournal.at(temporaryDirectory('journal'));
  const sandboxes = new Sandboxes({ drivers: [driver], reporter, journal, log, signal });
  await sandboxes.adoptAll();
  sandboxes.hold(id, driver);
  const desk = new OrderDesk({
    ...{ runnerId: 'local', sandboxes, reporter, journal, artifacts: undefined, log, signal },
    ...{ setup: new Setup({ cache: undefined, log }), creations: new Creations(signal) },
  });

  await desk.take(order);
  await desk.take(order);
  expect(reported).toEqual([]);
  engine.isAway = false;
  await desk.take(order);
  expect(engine.has).toBe(false);
  expect(reported).toEqual(['SandboxReleased']);
  stop.abort();
  await sandboxes.close();
});
