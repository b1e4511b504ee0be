import '@vmux/early-jit';
import { join } from 'node:path';
import { runnerProcess, type SandboxDriver } from '@vmux/runner-kit';
import { type Config, configFrom } from './config';
import { DockerDriver } from './drivers/docker-driver';
import { resolveEndpoint } from './drivers/docker-endpoint';
import { NsDriver } from './drivers/ns-driver';
import { NO_ISOLATION, ProcessDriver } from './drivers/process-driver';

async function main(): Promise<void> {
  process.umask(0o077);
  const config = configFrom(process.env);
  await runnerProcess(config, (warn) => driversOf(config, warn));
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
