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
  /** Whether sessions may ask for the public internet; the first that does changes the host's firewall. */
  readonly egress: boolean;
  /** Offers sessions as plain processes, which isolates nothing. */
  readonly plainProcesses: boolean;
  /** Where gateways reach the data plane. */
  readonly tunnel: {
    readonly host: string;
    readonly port: number;
    readonly announcedUrl: string | null;
  };
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
    egress: egressFrom(env),
    plainProcesses: env.VMUX_PLAIN_PROCESSES === 'isolate-nothing',
    tunnel: tunnelFrom(env),
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}

function egressFrom(env: NodeJS.ProcessEnv): boolean {
  const said = env.VMUX_EGRESS || 'on';
  if (said !== 'on' && said !== 'off')
    throw new Error('set VMUX_EGRESS to on, so that sessions may ask for the internet, or to off');
  return said === 'on';
}

function tunnelFrom(env: NodeJS.ProcessEnv): Config['tunnel'] {
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
  if (announcedUrl === null && !/^(127\.\d+\.\d+\.\d+|::1|localhost)$/.test(host))
    throw new Error(
      'set VMUX_TUNNEL_URL to where gateways dial this runner, with TLS in front of it',
    );
  return { host, port, announcedUrl };
}
