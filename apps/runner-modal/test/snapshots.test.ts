import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory } from '@vmux/testing';
import { ModalDriver, type ModalDriverSettings } from '../src/drivers/modal-driver';
import { type ModalEmulator, startModalEmulator } from './emulator';

jest.setTimeout(120_000);
const DAY_S = 24 * 3600;

describeUnless(
  process.platform === 'linux' && process.getuid?.() === 0,
  'the emulator’s workers are namespaces, which need Linux and root',
)('snapshots on Modal (emulated)', () => {
  let emulator: ModalEmulator;
  let driver: ModalDriver;
  const made: SandboxId[] = [];
  const drivers: ModalDriver[] = [];
  const snapshotsDirectory = temporaryDirectory('snapshots');

  const open = (change: Partial<ModalDriverSettings> = {}) => {
    const opened = new ModalDriver({
      runnerId: 'one',
      tokenId: emulator.tokenId,
      tokenSecret: emulator.tokenSecret,
      serverUrl: emulator.url,
      appName: 'vmux-test',
      supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
      snapshotsDirectory,
      defaultImage: 'python:3.12-slim-bookworm',
      ...change,
    });
    drivers.push(opened);
    return opened;
  };
  const newSpec = () => {
    const instance = randomBytes(8).toString('hex');
    const id = { sessionId: `web-${instance.slice(0, 4)}`, epoch: 1, instance };
    made.push(id);
    const limits = { cpus: 1, memoryMiB: 256, diskMiB: 512, pids: 256 };
    return { id, limits, image: null, egress: false, gpu: null };
  };
  const created = async (): Promise<SandboxId> => {
    const spec = newSpec();
    await driver.create(spec);
    return spec.id;
  };
  const imageOf = async (ref: string) =>
    (await emulator.images()).find(({ imageId }) => imageId === ref.split('@')[0]);
  const now = { sinceNs: 1_700_000_000_000_000_000n };

  beforeAll(async () => {
    emulator = await startModalEmulator();
    driver = open();
  });
  afterEach(async () => {
    await emulator.faults({ snapshotDelayMs: 0, callDelayMs: 0 });
    await Promise.all(made.splice(0).map((id) => driver.destroy(id)));
  });
  afterAll(async () => {
    await Promise.all(drivers.map((opened) => opened.close()));
    await emulator.stop();
    await releaseAll();
  });

  it('last a week at most, and are known to a driver that comes after', async () => {
    const id = await created();
    const { ref } = await driver.snapshot(id, now);
    const leftS = ((await imageOf(ref))?.expiresAt ?? 0) - Date.now() / 1000;
    expect([leftS > 6 * DAY_S, leftS <= 7 * DAY_S]).toEqual([true, true]);
    expect(await open().checkpoints()).toMatchObject([{ ref, sessionId: id.sessionId }]);
    const elsewhere = open({ snapshotsDirectory: temporaryDirectory('snapshots') });
    expect(await elsewhere.checkpoints()).toEqual([]);
    await open().forget(ref);
    expect(await imageOf(ref)).toMatchObject({ isGone: true });
    await driver.forget(ref);
    expect(await driver.checkpoints()).toEqual([]);
  });

  it('are restored by another runner of the app, whose sandbox says what it is made of', async () => {
    const { ref } = await driver.snapshot(await created(), now);
    const spec = newSpec();
    const other = open({ runnerId: 'two', snapshotsDirectory: temporaryDirectory('snapshots') });
    await other.restore(spec, { ref, bytes: 0 });
    expect(await other.adopt(spec.id)).toMatchObject({ restoredFrom: ref });
    expect(await imageOf(ref)).toMatchObject({ creates: 1 });
    await driver.forget(ref);
  });

  it('are refused when Modal has them no more, and when they are none', async () => {
    const { ref } = await driver.snapshot(await created(), now);
    await emulator.removeImage(ref.split('@')[0] ?? '');
    const refusal = { next: 'refuse', reason: 'unsupported' };
    await expect(driver.restore(newSpec(), { ref, bytes: 0 })).rejects.toMatchObject(refusal);
    for (const hostile of ['im-1', 'im-1@x', 'im-1@1;reboot', '../im-1@1'])
      await expect(driver.restore(newSpec(), { ref: hostile, bytes: 0 })).rejects.toMatchObject({
        next: 'refuse',
      });
    await driver.forget(ref);
  });

  it('are given up when they take too long, and not asked for again at once', async () => {
    const id = await created();
    await emulator.faults({ snapshotDelayMs: 3_000 });
    const hurried = open({ snapshotWithinMs: 500 });
    await expect(hurried.snapshot(id, now)).rejects.toMatchObject({ next: 'retry' });
    await emulator.faults({ snapshotDelayMs: 0 });
    await expect(hurried.snapshot(id, now)).rejects.toMatchObject({ next: 'refuse' });
    const { ref } = await driver.snapshot(id, now);
    await driver.forget(ref);
  });

  it('are given up too when Modal does not answer at all', async () => {
    const id = await created();
    const hurried = open({ snapshotWithinMs: 500 });
    (await hurried.openPipe(id)).destroy();
    await emulator.faults({ callDelayMs: 600_000 });
    await expect(hurried.snapshot(id, now)).rejects.toMatchObject({ next: 'retry' });
  });

  it('and sandboxes alike have no limit of their disk: one that is asked for is refused', async () => {
    const limited = { ...newSpec(), needsDiskLimit: true };
    await expect(driver.create(limited)).rejects.toMatchObject({
      next: 'refuse',
      reason: 'unsupported',
      message: expect.stringContaining('no disk limit'),
    });
  });
});
