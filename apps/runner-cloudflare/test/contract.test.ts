import { join } from 'node:path';
import { type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { type ContractTarget, driverContract } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { workerFrom } from '../src/config';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';
import { isRoot, startTestEmulator } from './emulator';

afterAll(releaseAll);

const runnerId = 'contract';

/** By the address and the file of the key alone: a key never stands in an argument. */
function targetAt(
  env: { readonly CLOUDFLARE_WORKER_URL: string; readonly CLOUDFLARE_WORKER_KEY_FILE: string },
  killFromOutside: ContractTarget['killFromOutside'],
): ContractTarget {
  const program = join(projectRoot(), 'dist/apps/runner-cloudflare/test/contract-runner.js');
  return {
    openDriver: () => new CloudflareDriver({ runnerId, worker: workerFrom(env) }),
    killFromOutside,
    runner: { command: process.execPath, args: [program, JSON.stringify({ runnerId, env })] },
    image: null,
    close: async () => undefined,
  };
}

async function emulatedTarget(): Promise<ContractTarget> {
  const { url, keyFile, control } = await startTestEmulator();
  const env = { CLOUDFLARE_WORKER_URL: url, CLOUDFLARE_WORKER_KEY_FILE: keyFile };
  return targetAt(env, async (id) => void (await control('kill', id)));
}

/** With an account, and only when asked for: see docs/cloudflare.md. */
async function liveTarget(): Promise<ContractTarget> {
  const { CLOUDFLARE_WORKER_URL = '', CLOUDFLARE_WORKER_KEY_FILE = '' } = process.env;
  const env = { CLOUDFLARE_WORKER_URL, CLOUDFLARE_WORKER_KEY_FILE };
  const kill = async (id: SandboxId) => {
    const driver = new CloudflareDriver({ runnerId, worker: workerFrom(env) });
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    // The workload is root beside its supervisor there.
    const script =
      'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = vmux-supervisor ] && kill -9 $(basename $p); done';
    await client.start({ execId: 'kill', argv: ['/bin/sh', '-c', script] }).catch(() => undefined);
    client.close();
  };
  return targetAt(env, kill);
}

const isLive = process.env.VMUX_LIVE === 'cloudflare';
if (isLive) driverContract('cloudflare (live)', liveTarget);
else
  driverContract(
    'cloudflare (emulated)',
    emulatedTarget,
    describeUnless(isRoot, 'the emulator’s containers are namespaces, which need root on Linux'),
  );
