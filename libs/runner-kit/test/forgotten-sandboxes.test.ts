import { readdirSync } from 'node:fs';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { type SandboxDriver, type SandboxId, type SandboxRecord } from '../src/driver';
import { DriverUnavailable } from '../src/errors';
import type { Reporter } from '../src/work/reporter';
import { RunnerJournal } from '../src/work/runner-journal';
import { Sandboxes } from '../src/work/sandboxes';

afterAll(releaseAll);

const origin = {
  base: { image: null, digest: null, distribution: null, architecture: 'x64' },
  restoredDigest: null,
};
const idOf = (sessionId: string): SandboxId => ({ sessionId, epoch: 1, instance: 'i1' });

/** A driver that has these sandboxes, as soon as it is there. */
function driverOf(provider: string, has: readonly SandboxId[]) {
  const state = { available: true };
  const limits = { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 64 };
  const records = has.map(
    (id): SandboxRecord => ({
      ...{ id, limits, createdAtMs: 0, probe: { state: 'suspended' }, restoredFrom: null },
    }),
  );
  const driver = {
    provider,
    capabilities: async () => ({ available: state.available, reason: null, offered: [] }),
    list: async () => records,
    probe: async () => ({ state: 'suspended' }),
    openPipe: async () => {
      throw new DriverUnavailable('nobody is there');
    },
  } as unknown as SandboxDriver;
  return { driver, state };
}

async function startedWith(drivers: readonly SandboxDriver[], directory: string) {
  const stop = new AbortController();
  const journal = await RunnerJournal.at(directory);
  const reporter = {} as Reporter;
  const sandboxes = new Sandboxes({
    ...{ drivers, reporter, journal, log: () => undefined, signal: stop.signal },
  });
  await sandboxes.adoptAll();
  return sandboxes;
}

test('what is known of a sandbox that a killed runner had destroyed is forgotten by the next one', async () => {
  const directory = temporaryDirectory('journal');
  const journal = await RunnerJournal.at(directory);
  for (const id of [idOf('there-1111'), idOf('gone-2222')])
    await journal.recordPrepared(id, origin);
  const sandboxes = await startedWith([driverOf('ns', [idOf('there-1111')]).driver], directory);
  expect(readdirSync(directory)).toEqual(['there-1111.1.i1']);
  await sandboxes.close();
});

test('a sandbox of a driver that does not answer yet stays known', async () => {
  const directory = temporaryDirectory('journal');
  const journal = await RunnerJournal.at(directory);
  for (const id of [idOf('docked-1111'), idOf('gone-2222')])
    await journal.recordPrepared(id, origin);
  const late = driverOf('docker', [idOf('docked-1111')]);
  late.state.available = false;
  const sandboxes = await startedWith([driverOf('ns', []).driver, late.driver], directory);
  expect(readdirSync(directory).sort()).toEqual(['docked-1111.1.i1', 'gone-2222.1.i1']);
  late.state.available = true;
  await sandboxes.adoptAll();
  expect(readdirSync(directory)).toEqual(['docked-1111.1.i1']);
  await sandboxes.close();
});
