import { type SandboxId, type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import { NsDriver } from '../src/drivers/ns-driver';
import { isRoot, nsOptions } from './ns-target';

const MIB = 1024 * 1024;
const limits = { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 48 };
const id: SandboxId = { sessionId: 'limits-0001', epoch: 1, instance: 'a' };
const spec: SandboxSpec = { id, limits, image: null, egress: false, gpu: null };

/** Of cgroup v1 and v2 alike: which one counts is this machine's. */
describeUnless(isRoot, 'control groups need root')('what an ns sandbox uses', () => {
  const driver = new NsDriver(nsOptions());
  let client: SupervisorClient;

  beforeAll(async () => {
    await driver.create(spec);
    client = await SupervisorClient.connect(await driver.openPipe(id), id);
  }, 60_000);
  afterAll(async () => {
    client?.close();
    await driver.destroy(id);
    await driver.close();
    await releaseAll();
  }, 60_000);

  const start = (execId: string, script: string) =>
    client.start({ execId, argv: ['sh', '-c', script] });
  const endOf = async (execId: string) => {
    for await (const item of client.read(execId)) if (item.kind === 'end') return item.exec;
    throw new Error('no end');
  };

  it('is told beside its limits', async () => {
    const figures = await client.figures();
    expect(figures).toMatchObject({ memoryLimitBytes: 64 * MIB, pidsLimit: 48, oomKills: 0 });
    expect(figures.memoryBytes).toBeLessThan(64 * MIB);
    expect(figures.pids).toBeGreaterThan(0);
    expect(figures.diskTotalBytes).toBeLessThanOrEqual(64 * MIB);
  });

  it('counts processor time and processes while a command runs', async () => {
    const before = await client.figures();
    await start('spin', 'while :; do :; done');
    await start('sleep', 'sleep 1000 & sleep 1000 & wait');
    const busy = await until(async () => {
      const now = await client.figures();
      return (now.cpuUs ?? 0) > (before.cpuUs ?? 0) + 20_000 && now;
    });
    expect(busy.pids).toBeGreaterThan(before.pids ?? 0);
    await client.cancel('spin', 0);
    await client.cancel('sleep', 0);
    await endOf('sleep');
  });

  it('nears the limit of its memory before anything is killed for it, and keeps the peak', async () => {
    await start('hold', `exec perl -e 'vec($x, ${56 * MIB}, 8) = 1; sleep 1000'`);
    const near = await until(async () => {
      const { memoryBytes = 0, memoryCacheBytes = 0, ...more } = await client.figures();
      return memoryBytes - memoryCacheBytes > 0.85 * 64 * MIB && more;
    });
    expect(near.oomKills).toBe(0);
    await client.cancel('hold', 0);
    await endOf('hold');
    const { memoryBytes = 0, memoryPeakBytes = 0 } = await client.figures();
    expect(memoryPeakBytes).toBeGreaterThan(memoryBytes);
    expect(memoryPeakBytes).toBeGreaterThan(0.85 * 64 * MIB);
  });

  it('has its kills for want of memory counted, each once', async () => {
    for (const count of [1, 2]) {
      await start(`hog-${count}`, 'exec tail /dev/zero');
      expect((await endOf(`hog-${count}`)).outcome).toMatchObject({ kind: 'signalled', signal: 9 });
      expect((await client.figures()).oomKills).toBe(count);
    }
    const { memoryPeakBytes = 0 } = await client.figures();
    expect(memoryPeakBytes).toBeLessThanOrEqual(64 * MIB);
  });

  it('stands still while it is suspended, with everything that it runs', async () => {
    await start('spin-again', 'while :; do :; done');
    const at = async () => (await client.figures()).cpuUs ?? 0;
    const before = await at();
    await until(async () => (await at()) > before + 20_000);
    await driver.suspend(id);
    expect(await driver.probe(id)).toEqual({ state: 'suspended' });
    await driver.resume(id);
    const after = await at();
    await until(async () => (await at()) > after + 20_000);
    await client.cancel('spin-again', 0);
  });
});
