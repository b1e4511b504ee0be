import { join, resolve } from 'node:path';
import { type BusSettings, busSettingsFrom } from '@vmux/messaging';

export interface Config {
  readonly runnerId: string;
  readonly bus: BusSettings;
  /** Sandboxes and what the runner remembers of them. */
  readonly dataDir: string;
  readonly artifactsDir: string | null;
  readonly maxSandboxes: number;
  readonly supervisorFile: string;
  readonly launcherFile: string;
  /** For docker sessions that name none. */
  readonly dockerImage: string;
  readonly logLevel: string;
}

/** Reads every setting once; says what to set when one is missing or wrong. */
export function configFrom(env: NodeJS.ProcessEnv): Config {
  const runnerId = env.VMUX_RUNNER_ID || 'local';
  if (!/^(?=.{1,63}$)[a-z0-9]+(?:-[a-z0-9]+)*$/.test(runnerId)) {
    throw new Error(
      'set VMUX_RUNNER_ID to lower case letters, digits and single dashes, at most 63',
    );
  }
  if (!env.VMUX_RUNNER_DIR)
    throw new Error('set VMUX_RUNNER_DIR to the directory of this runner’s sandboxes');
  const maxSandboxes = Number(env.VMUX_MAX_SANDBOXES || 256);
  if (!Number.isInteger(maxSandboxes) || maxSandboxes < 1) {
    throw new Error('set VMUX_MAX_SANDBOXES to a whole number from 1 on');
  }
  const native = env.VMUX_NATIVE_DIR || resolve(__dirname, '../../../native');
  return {
    runnerId,
    bus: busSettingsFrom(env, `runner ${runnerId}`),
    dataDir: resolve(env.VMUX_RUNNER_DIR),
    artifactsDir: env.VMUX_ARTIFACTS_DIR || null,
    maxSandboxes,
    supervisorFile: join(native, 'vmux-supervisor'),
    launcherFile: join(native, 'vmux-ns'),
    dockerImage: env.VMUX_DOCKER_IMAGE || 'debian:bookworm-slim',
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}
