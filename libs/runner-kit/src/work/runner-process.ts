import { join, resolve } from 'node:path';
import { openArtifacts } from '@vmux/artifacts';
import { type BusSettings, busSettingsFrom, connectBus } from '@vmux/messaging';
import pino from 'pino';
import type { SandboxDriver } from '../driver';
import { startRunner } from './runner';

/** What every runner's process is told by its environment, whatever its provider. */
export interface RunnerConfig {
  readonly runnerId: string;
  readonly bus: BusSettings;
  /** What the runner remembers; a local one keeps its sandboxes there too. */
  readonly dataDir: string;
  readonly artifactsDir: string | null;
  readonly maxSandboxes: number;
  /** Where the programs of native/ are. */
  readonly nativeDir: string;
  /** Where gateways reach the data plane. */
  readonly tunnel: {
    readonly host: string;
    readonly port: number;
    readonly announcedUrl: string | null;
  };
  readonly logLevel: string;
}

export interface RunnerDefaults {
  readonly runnerId: string;
  readonly maxSandboxes: number;
}

/** Reads every setting once; says what to set when one is missing or wrong. */
export function runnerConfigFrom(env: NodeJS.ProcessEnv, defaults: RunnerDefaults): RunnerConfig {
  const runnerId = env.VMUX_RUNNER_ID || defaults.runnerId;
  if (!/^(?=.{1,63}$)[a-z0-9]+(?:-[a-z0-9]+)*$/.test(runnerId)) {
    throw new Error(
      'set VMUX_RUNNER_ID to lower case letters, digits and single dashes, at most 63',
    );
  }
  if (!env.VMUX_RUNNER_DIR)
    throw new Error('set VMUX_RUNNER_DIR to a directory for what this runner keeps');
  const maxSandboxes = Number(env.VMUX_MAX_SANDBOXES || defaults.maxSandboxes);
  if (!Number.isInteger(maxSandboxes) || maxSandboxes < 1)
    throw new Error('set VMUX_MAX_SANDBOXES to a whole number from 1 on');
  return {
    runnerId,
    bus: busSettingsFrom(env, `runner ${runnerId}`),
    dataDir: resolve(env.VMUX_RUNNER_DIR),
    artifactsDir: env.VMUX_ARTIFACTS_DIR || null,
    maxSandboxes,
    nativeDir: env.VMUX_NATIVE_DIR || resolve(__dirname, '../../../../native'),
    tunnel: tunnelFrom(env),
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}

/** Runs a runner until it is told to stop; its sandboxes go on. */
export async function runnerProcess(
  config: RunnerConfig,
  driversWith: (warn: (message: string) => void) => readonly SandboxDriver[],
  { emulated = false }: { readonly emulated?: boolean } = {},
): Promise<void> {
  const logger = pino(
    { level: config.logLevel, base: { runner: config.runnerId } },
    pino.destination(2),
  );
  const bus = await connectBus(config.bus, (fault, subject) =>
    logger.error({ subject, err: fault }, 'a message could not be handled'),
  );
  const runner = await startRunner({
    runnerId: config.runnerId,
    drivers: driversWith((message) => logger.warn(message)),
    bus,
    journalDirectory: join(config.dataDir, 'journal'),
    artifacts: config.artifactsDir ? await openArtifacts(config.artifactsDir) : undefined,
    setupCache: { directory: join(config.dataDir, 'setups') },
    maxSandboxes: config.maxSandboxes,
    emulated,
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

export const isLoopback = (hostname: string): boolean =>
  /^(127\.\d+\.\d+\.\d+|\[::1\]|::1|localhost)$/.test(hostname);

function tunnelFrom(env: NodeJS.ProcessEnv): RunnerConfig['tunnel'] {
  const host = env.VMUX_TUNNEL_HOST || '127.0.0.1';
  const port = Number(env.VMUX_TUNNEL_PORT || 0);
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new Error('set VMUX_TUNNEL_PORT to a port, or leave it out for any');
  const announcedUrl = env.VMUX_TUNNEL_URL || null;
  if (announcedUrl !== null && !/^wss?:\/\/[^/]+\/tunnel\/1$/.test(announcedUrl))
    throw new Error(
      'set VMUX_TUNNEL_URL to wss://<name>/tunnel/1, where gateways dial this runner',
    );
  // The token and the bytes would cross the network in clear, to an address that nobody can dial.
  if (announcedUrl === null && !isLoopback(host))
    throw new Error(
      'set VMUX_TUNNEL_URL to where gateways dial this runner, with TLS in front of it',
    );
  return { host, port, announcedUrl };
}
