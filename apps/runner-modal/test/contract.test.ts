import { join } from 'node:path';
import { driverContract } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { ModalDriver, type ModalDriverSettings, nameOf } from '../src/drivers/modal-driver';
import { startModalEmulator } from './emulator';

const group = describeUnless(
  process.platform === 'linux' && process.getuid?.() === 0,
  'the emulator’s workers are namespaces, which need Linux and root',
);

afterAll(releaseAll);

driverContract(
  'modal (emulated)',
  async () => {
    const emulator = await startModalEmulator();
    const settings: ModalDriverSettings = {
      runnerId: 'test',
      tokenId: emulator.tokenId,
      tokenSecret: emulator.tokenSecret,
      serverUrl: emulator.url,
      appName: 'vmux-test',
      supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
      defaultImage: 'python:3.12-slim-bookworm',
    };
    const drivers: ModalDriver[] = [];
    const program = join(projectRoot(), 'dist/apps/runner-modal/test/contract-runner.js');
    return {
      openDriver: () => {
        const driver = new ModalDriver(settings);
        drivers.push(driver);
        return driver;
      },
      killFromOutside: async (id) => {
        await emulator.end(nameOf(id), 'lost');
      },
      runner: { command: process.execPath, args: [program, JSON.stringify(settings)] },
      image: null,
      close: async () => {
        await Promise.all(drivers.map((driver) => driver.close()));
        await emulator.stop();
      },
    };
  },
  group,
);
