import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type BusSettings, busSettingsFrom } from '@vmux/messaging';
import { LEAST_KEY_CHARS } from '../../../workers/cloudflare/src/signature';

export interface Config {
  readonly runnerId: string;
  readonly bus: BusSettings;
  /** What the runner remembers of its sandboxes. */
  readonly journalDir: string;
  readonly artifactsDir: string | null;
  readonly maxSandboxes: number;
  /** Null when it is not set. */
  readonly worker: { readonly url: string; readonly key: string } | null;
  /** Where gateways reach the data plane. */
  readonly tunnel: {
    readonly host: string;
    readonly port: number;
    readonly announcedUrl: string | null;
  };
  readonly logLevel: string;
}

/** Reads every setting once; says what to set when one is wrong. Without a Worker it is not an error. */
export function configFrom(env: NodeJS.ProcessEnv): Config {
  const runnerId = env.VMUX_RUNNER_ID || 'cloudflare';
  if (!/^(?=.{1,63}$)[a-z0-9]+(?:-[a-z0-9]+)*$/.test(runnerId)) {
    throw new Error(
      'set VMUX_RUNNER_ID to lower case letters, digits and single dashes, at most 63',
    );
  }
  if (!env.VMUX_RUNNER_DIR)
    throw new Error('set VMUX_RUNNER_DIR to a directory for what this runner remembers');
  const maxSandboxes = Number(env.VMUX_MAX_SANDBOXES || 1000);
  if (!Number.isInteger(maxSandboxes) || maxSandboxes < 1)
    throw new Error('set VMUX_MAX_SANDBOXES to a whole number from 1 on');
  return {
    runnerId,
    bus: busSettingsFrom(env, `runner ${runnerId}`),
    journalDir: join(resolve(env.VMUX_RUNNER_DIR), 'journal'),
    artifactsDir: env.VMUX_ARTIFACTS_DIR || null,
    maxSandboxes,
    worker: workerFrom(env),
    tunnel: tunnelFrom(env),
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}

export function workerFrom(env: NodeJS.ProcessEnv): Config['worker'] {
  const { CLOUDFLARE_WORKER_URL: given, CLOUDFLARE_WORKER_KEY_FILE: keyFile } = env;
  if (!given && !keyFile) return null;
  if (!given) throw new Error('set CLOUDFLARE_WORKER_URL to where the Worker is deployed');
  if (!keyFile)
    throw new Error('set CLOUDFLARE_WORKER_KEY_FILE to a file with the Worker’s secret VMUX_KEY');
  if (!URL.canParse(given)) throw new Error('set CLOUDFLARE_WORKER_URL to https://<name>');
  const { protocol, hostname, origin } = new URL(given);
  // Signatures do not hide what is said.
  if (protocol !== 'https:' && !isLoopback(hostname))
    throw new Error('set CLOUDFLARE_WORKER_URL to https://<name>: it is not on this machine');
  const key = readFileSync(keyFile, 'utf8').trim();
  if (key.length < LEAST_KEY_CHARS)
    throw new Error(`the key in ${keyFile} has less than ${LEAST_KEY_CHARS} characters`);
  return { url: origin, key };
}

export const isLoopback = (hostname: string): boolean =>
  /^(127\.\d+\.\d+\.\d+|\[::1\]|::1|localhost)$/.test(hostname);

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
  if (announcedUrl === null && !isLoopback(host))
    throw new Error(
      'set VMUX_TUNNEL_URL to where gateways dial this runner, with TLS in front of it',
    );
  return { host, port, announcedUrl };
}
