import { join } from 'node:path';
import { openArtifacts } from '@vmux/artifacts';
import { connectBus } from '@vmux/messaging';
import { type SandboxDriver, startRunner } from '@vmux/runner-kit';
import pino from 'pino';
import { type Config, configFrom } from './config';
import { DockerDriver } from './drivers/docker-driver';
import { resolveEndpoint } from './drivers/docker-endpoint';
import { NsDriver } from './drivers/ns-driver';
import { NO_ISOLATION, ProcessDriver } from './drivers/process-driver';

async function main(): Promise<void> {
  process.umask(0o077);
  const config = configFrom(process.env);
  const logger = pino(
    { level: config.logLevel, base: { runner: config.runnerId } },
    pino.destination(2),
  );
  const bus = await connectBus(config.bus, (fault, subject) =>
    logger.error({ subject, err: fault }, 'a message could not be handled'),
  );
  const runner = await startRunner({
    runnerId: config.runnerId,
    drivers: driversOf(config, (message) => logger.warn(message)),
    bus,
    journalDirectory: join(config.dataDir, 'journal'),
    artifacts: config.artifactsDir ? await openArtifacts(config.artifactsDir) : undefined,
    setupCache: { directory: join(config.dataDir, 'setups') },
    maxSandboxes: config.maxSandboxes,
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
  process.stdout.write(`${JSON.stringify({ ready: true, runnerId: config.runnerId })}\n`);
}

function driversOf(config: Config, warn: (message: string) => void): SandboxDriver[] {
  const { supervisorFile, launcherFile } = config;
  const ns = new NsDriver({
    dataDir: join(config.dataDir, 'ns'),
    launcherPath: launcherFile,
    supervisorPath: supervisorFile,
    egress: config.egress,
  });
  const endpoint = resolveEndpoint({ env: process.env });
  const plain = config.plainProcesses ? [plainProcesses(config, warn)] : [];
  if (!endpoint) return [ns, ...plain];
  const { runnerId, dockerImage: defaultImage } = config;
  const guard = config.egress ? { guardFile: launcherFile } : {};
  const docker = { runnerId, endpoint, defaultImage, supervisorFile, ...guard };
  return [ns, new DockerDriver(docker), ...plain];
}

function plainProcesses(config: Config, warn: (message: string) => void): SandboxDriver {
  warn(NO_ISOLATION);
  const dataDir = join(config.dataDir, 'process');
  return new ProcessDriver({ dataDir, supervisorPath: config.supervisorFile, warn });
}

main().catch((error: Error) => {
  process.stderr.write(`runner-local: ${error.message}\n`);
  process.exit(1);
});
