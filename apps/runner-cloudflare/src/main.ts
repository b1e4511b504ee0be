import '@vmux/early-jit';
import { isLoopback, runnerConfigFrom, runnerProcess } from '@vmux/runner-kit';
import { type WorkerAccess, workerFrom } from './config';
import { CloudflareDriver } from './drivers/cloudflare-driver';

/** Runs a runner for Cloudflare. Without a Worker the provider is listed as unavailable, with the reason. */
async function main(): Promise<void> {
  process.umask(0o077);
  const config = runnerConfigFrom(process.env, { runnerId: 'cloudflare', maxSandboxes: 1000 });
  const worker = workerFrom(process.env);
  const driver = new CloudflareDriver({ runnerId: config.runnerId, worker });
  const { available, reason } = await driver.capabilities();
  if (!available) process.stderr.write(`runner-cloudflare: ${reason}\n`);
  await runnerProcess(config, () => [driver], { emulated: await isEmulated(driver, worker) });
}

/** The Worker says so itself; while it does not answer, only one on this machine can be emulated. */
async function isEmulated(driver: CloudflareDriver, worker: WorkerAccess | null): Promise<boolean> {
  if (!worker) return false;
  return driver.about().then(
    ({ emulated }) => emulated,
    () => isLoopback(new URL(worker.url).hostname),
  );
}

main().catch((error: Error) => {
  process.stderr.write(`runner-cloudflare: ${error.message}\n`);
  process.exit(1);
});
