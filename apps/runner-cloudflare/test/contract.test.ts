import { join } from 'node:path';
import { driverContract } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { CloudflareDriver, type CloudflareDriverSettings } from '../src/drivers/cloudflare-driver';
import { isRoot, startTestEmulator } from './emulator';

afterAll(releaseAll);

driverContract(
  'cloudflare (emulated)',
  async () => {
    const { url, key, control } = await startTestEmulator();
    const settings: CloudflareDriverSettings = { runnerId: 'cloudflare', worker: { url, key } };
    const program = join(projectRoot(), 'dist/apps/runner-cloudflare/test/contract-runner.js');
    return {
      openDriver: () => new CloudflareDriver(settings),
      killFromOutside: async (id) => void (await control('kill', id)),
      runner: { command: process.execPath, args: [program, JSON.stringify(settings)] },
      image: null,
      close: async () => undefined,
    };
  },
  describeUnless(isRoot, 'the emulator’s containers are namespaces, which need root on Linux'),
);
