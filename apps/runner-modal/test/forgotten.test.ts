import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { ModalApi } from '../src/drivers/modal-api';
import { ModalDriver } from '../src/drivers/modal-driver';
import { nameOf } from '../src/drivers/modal-tags';
import { bootCommand } from '../src/drivers/supervisor-boot';
import { type ModalEmulator, startModalEmulator } from './emulator';

jest.setTimeout(120_000);

describeUnless(
  process.platform === 'linux' && process.getuid?.() === 0,
  'the emulator’s workers are namespaces, which need Linux and root',
)('what nobody needs on Modal (emulated)', () => {
  let emulator: ModalEmulator;
  beforeAll(async () => {
    emulator = await startModalEmulator();
  });
  afterAll(async () => {
    await emulator?.stop();
    await releaseAll();
  });

  const newId = () => {
    const instance = randomBytes(8).toString('hex');
    return { sessionId: 'web-0a1b', epoch: 1, instance };
  };
  const access = () => {
    const { tokenId, tokenSecret, url: serverUrl } = emulator;
    return { tokenId, tokenSecret, serverUrl, appName: 'vmux-test' };
  };

  it('ends: a sandbox whose maker is gone before it put a supervisor there', async () => {
    const api = new ModalApi(access());
    const id = newId();
    const image = await api.image(
      { from: 'python:3.12-slim-bookworm', build: [] },
      () => undefined,
    );
    const sandboxId = await api.create({
      ...{ name: nameOf(id), image, command: bootCommand(id, 64, undefined, 200) },
      ...{ cores: 1, memoryMiB: 256, gpu: undefined, egress: false },
      ...{ timeoutMs: 3_600_000, tags: {} },
    });
    expect(await until(() => api.ending(sandboxId))).toMatchObject({ status: 2 });
    api.close();
  });

  it('is let go of: what is held for a sandbox that was destroyed, or had ended by itself', async () => {
    const driver = new ModalDriver({
      ...{ ...access(), runnerId: 'test' },
      supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
      snapshotsDirectory: temporaryDirectory('snapshots'),
      defaultImage: 'python:3.12-slim-bookworm',
    });
    const { api } = driver as unknown as { readonly api: ModalApi };
    for (const isLost of [false, true]) {
      const id = newId();
      const limits = { cpus: 1, memoryMiB: 256, diskMiB: 512, pids: 256 };
      await driver.create({ id, limits, image: null, egress: false, gpu: null });
      expect(api.held).toBe(1);
      if (isLost) await emulator.end(nameOf(id), 'lost');
      await driver.destroy(id);
      expect(api.held).toBe(0);
    }
    await driver.close();
  });
});
