import '@vmux/early-jit';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isLoopback, runnerConfigFrom, runnerProcess } from '@vmux/runner-kit';
import { ModalDriver } from './drivers/modal-driver';

/** Runs a runner for Modal. Without a token the provider is listed as unavailable, with the reason. */
async function main(): Promise<void> {
  process.umask(0o077);
  const { env } = process;
  const config = runnerConfigFrom(env, { runnerId: 'modal', maxSandboxes: 100 });
  const driver = new ModalDriver({
    runnerId: config.runnerId,
    tokenId: env.MODAL_TOKEN_ID ?? '',
    tokenSecret: secretFrom(env),
    appName: env.VMUX_MODAL_APP || 'vmux',
    supervisorFile: join(config.nativeDir, 'vmux-supervisor'),
    snapshotsDirectory: join(config.dataDir, 'snapshots'),
    defaultImage: env.VMUX_MODAL_IMAGE || 'python:3.12-slim-bookworm',
    lifetimeMs: lifetimeFrom(env.VMUX_MODAL_LIFETIME_SECONDS),
  });
  const { available, reason } = await driver.capabilities();
  if (!available) process.stderr.write(`runner-modal: Modal is not available: ${reason}\n`);
  const server = env.MODAL_SERVER_URL;
  const emulated = server !== undefined && isLoopback(new URL(server).hostname);
  await runnerProcess(config, () => [driver], { emulated });
}

/** Modal ends a sandbox after 24 hours at the latest. */
function lifetimeFrom(seconds: string | undefined): number | undefined {
  if (!seconds) return undefined;
  if (!/^\d{2,5}$/.test(seconds) || Number(seconds) < 30 || Number(seconds) > 86_400)
    throw new Error('set VMUX_MODAL_LIFETIME_SECONDS to a whole number from 30 to 86400');
  return Number(seconds) * 1000;
}

const secretFrom = ({ MODAL_TOKEN_SECRET, MODAL_TOKEN_SECRET_FILE }: NodeJS.ProcessEnv): string =>
  MODAL_TOKEN_SECRET_FILE
    ? readFileSync(MODAL_TOKEN_SECRET_FILE, 'utf8').trim()
    : (MODAL_TOKEN_SECRET ?? '');

main().catch((error: Error) => {
  process.stderr.write(`runner-modal: ${error.message}\n`);
  process.exit(1);
});
