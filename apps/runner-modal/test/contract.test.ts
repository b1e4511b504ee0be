import { join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import { type ContractTarget, driverContract, layersOn } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory } from '@vmux/testing';
import { ModalApi, type ModalSettings } from '../src/drivers/modal-api';
import { ModalDriver, type ModalDriverSettings } from '../src/drivers/modal-driver';
import { nameOf } from '../src/drivers/modal-tags';
import { startModalEmulator } from './emulator';

const { MODAL_TOKEN_ID, MODAL_TOKEN_SECRET, VMUX_MODAL_LIVE } = process.env;

afterAll(releaseAll);

function targetOf(
  modal: ModalSettings,
  killFromOutside: (id: SandboxId) => Promise<void>,
  stop: () => Promise<void>,
): ContractTarget {
  const settings: ModalDriverSettings = {
    ...modal,
    runnerId: 'test',
    supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
    snapshotsDirectory: temporaryDirectory('snapshots'),
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
    killFromOutside,
    runner: { command: process.execPath, args: [program, JSON.stringify(settings)] },
    image: null,
    close: async () => {
      await Promise.all(drivers.map((driver) => driver.close()));
      await stop();
    },
  };
}

async function emulated(): Promise<ContractTarget> {
  const emulator = await startModalEmulator();
  const { url: serverUrl, tokenId, tokenSecret } = emulator;
  const kill = async (id: SandboxId) => void (await emulator.end(nameOf(id), 'lost'));
  const stop = async () => void (await emulator.stop());
  return targetOf({ tokenId, tokenSecret, serverUrl, appName: 'vmux-test' }, kill, stop);
}

/** The same suite on an account, which costs a little: only when it is asked for. */
async function live(): Promise<ContractTarget> {
  const settings = {
    tokenId: MODAL_TOKEN_ID ?? '',
    tokenSecret: MODAL_TOKEN_SECRET ?? '',
    appName: 'vmux-contract',
  };
  const api = new ModalApi(settings);
  const kill = async (id: SandboxId) => {
    const sandboxId = await api.find(nameOf(id));
    if (sandboxId) await api.terminate(sandboxId);
  };
  return targetOf(settings, kill, async () => api.close());
}

if (VMUX_MODAL_LIVE) {
  driverContract('modal, live', live);
  layersOn('modal, live', live);
} else {
  const group = describeUnless(
    process.platform === 'linux' && process.getuid?.() === 0,
    'the emulator’s workers are namespaces, which need Linux and root',
  );
  driverContract('modal (emulated)', emulated, group);
  layersOn('modal (emulated)', emulated, group);
}
