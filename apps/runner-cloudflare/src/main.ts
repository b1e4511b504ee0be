import { ArtifactDirectory } from '@vmux/artifacts';
import { connectBus } from '@vmux/messaging';
import { startRunner } from '@vmux/runner-kit';
import pino from 'pino';
import { type Config, configFrom, isLoopback } from './config';
import { CloudflareDriver, NO_WORKER } from './drivers/cloudflare-driver';

async function main(): Promise<void> {
  process.umask(0o077);
  const config = configFrom(process.env);
  const { runnerId, worker } = config;
  const logger = pino({ level: config.logLevel, base: { runner: runnerId } }, pino.destination(2));
  if (!worker) process.stderr.write(`runner-cloudflare: ${NO_WORKER}\n`);
  const bus = await connectBus(config.bus, (fault, subject) =>
    logger.error({ subject, err: fault }, 'a message could not be handled'),
  );
  const driver = new CloudflareDriver({ runnerId, worker });
  const runner = await startRunner({
    runnerId,
    drivers: [driver],
    bus,
    journalDirectory: config.journalDir,
    artifacts: config.artifactsDir ? await ArtifactDirectory.at(config.artifactsDir) : undefined,
    maxSandboxes: config.maxSandboxes,
    emulated: await isEmulated(driver, worker),
    tunnel: config.tunnel,
    log: (message, facts = {}) => logger.info(facts, message),
  });
  let stopping = false;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (stopping) return;
      stopping = true;
      logger.info({ signal }, 'letting go of the sandboxes, which go on');
      runner
        .stop()
        .then(() => bus.close())
        .then(
          () => process.exit(0),
          (error) => {
            logger.error({ err: error }, 'stopping failed');
            process.exit(1);
          },
        );
    });
  }
  process.stdout.write(`${JSON.stringify({ ready: true, runnerId })}\n`);
}

/** The Worker says so itself; while it does not answer, only a Worker on this machine can be emulated. */
async function isEmulated(driver: CloudflareDriver, worker: Config['worker']): Promise<boolean> {
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
