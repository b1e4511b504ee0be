import { join } from 'node:path';
import { runnerConfigFrom, runnerProcess } from '@vmux/runner-kit';
import { ModalDriver } from './drivers/modal-driver';

/** Runs a runner for Modal. Without a token the provider is listed as unavailable, with the reason. */
async function main(): Promise<void> {
  process.umask(0o077);
  const { env } = process;
  const config = runnerConfigFrom(env, { runnerId: 'modal', maxSandboxes: 100 });
  const driver = new ModalDriver({
    runnerId: config.runnerId,
    tokenId: env.MODAL_TOKEN_ID ?? '',
    tokenSecret: env.MODAL_TOKEN_SECRET ?? '',
    appName: env.VMUX_MODAL_APP || 'vmux',
    supervisorFile: join(config.nativeDir, 'vmux-supervisor'),
    defaultImage: env.VMUX_MODAL_IMAGE || 'python:3.12-slim-bookworm',
  });
  const { available, reason } = await driver.capabilities();
  if (!available) process.stderr.write(`runner-modal: Modal is not available: ${reason}\n`);
  await runnerProcess(config, [driver]);
}

main().catch((error: Error) => {
  process.stderr.write(`runner-modal: ${error.message}\n`);
  process.exit(1);
});
