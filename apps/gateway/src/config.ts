import { type EventStoreSettings, eventStoreSettingsFrom } from '@vmux/event-store';
import { type BusSettings, busSettingsFrom } from '@vmux/messaging';
import { redisUrlFrom } from './projections/redis-url';

export interface Config {
  readonly host: string;
  /** 0 for any. */
  readonly port: number;
  readonly isLoopback: boolean;
  /** Lower case, without port; `*.name` stands for every name below. */
  readonly hostnames: readonly string[];
  /** What previews are below, such as https://preview.example.org; null for no previews. */
  readonly previewUrl: string | null;
  readonly store: EventStoreSettings;
  readonly bus: BusSettings;
  readonly artifactsDir: string;
  readonly keysDir: string;
  /** Where the local user's API key is written. */
  readonly dataDir: string | null;
  readonly redisUrl: string | null;
  readonly defaultProvider: string;
  /** Hosts beside the public internet that sessions may ask for; `*` for any. */
  readonly allowedHosts: readonly string[];
  readonly commandTimeoutMs: number;
  /** How long a stream may be silent. */
  readonly keepAliveMs: number;
  readonly limits: Limits;
  readonly logLevel: string;
}

export interface Limits {
  readonly bodyBytes: number;
  readonly bundleBytes: number;
  readonly headerBytes: number;
  readonly connections: number;
  /** Log and history streams that are open at once, of one owner. */
  readonly followersPerOwner: number;
  readonly requestsPerSecond: number;
  readonly requestBurst: number;
  readonly liveSessions: number;
}

const MIB = 1024 * 1024;

/** Reads every setting once; says what to set when one is missing or wrong. */
export function configFrom(env: NodeJS.ProcessEnv): Config {
  const host = env.VMUX_HOST || '127.0.0.1';
  const isLoopback = /^(127\.\d+\.\d+\.\d+|::1|localhost)$/.test(host);
  const hostnames = namesOf(env.VMUX_HOSTNAMES);
  if (!isLoopback && hostnames.length === 0)
    throw new Error(
      'set VMUX_HOSTNAMES to the names that clients call this gateway by, such as vmux.example.org',
    );
  return {
    host,
    port: numberOf(env, 'VMUX_PORT', 0, 65_535),
    isLoopback,
    hostnames: hostnames.length > 0 ? hostnames : ['localhost', '127.0.0.1', '[::1]', host],
    previewUrl: previewUrlFrom(env, isLoopback),
    store: { ...eventStoreSettingsFrom(env), timeoutMs: 5_000 },
    bus: busSettingsFrom(env, `gateway ${process.pid}`),
    artifactsDir: required(env, 'VMUX_ARTIFACTS_DIR', 'the directory of the artifact store'),
    keysDir: required(env, 'VMUX_KEYS_DIR', 'the directory of the session keys'),
    dataDir: env.VMUX_DATA_DIR || null,
    redisUrl: redisUrlFrom(env),
    defaultProvider: env.VMUX_DEFAULT_PROVIDER || 'ns',
    allowedHosts: namesOf(env.VMUX_ALLOW_HOSTS),
    commandTimeoutMs: numberOf(env, 'VMUX_COMMAND_TIMEOUT_MS', 10_000, 600_000),
    keepAliveMs: numberOf(env, 'VMUX_KEEP_ALIVE_MS', 15_000, 600_000),
    limits: {
      bodyBytes: MIB,
      bundleBytes: 100 * MIB,
      headerBytes: 16 * 1024,
      connections: numberOf(env, 'VMUX_MAX_CONNECTIONS', 2_000, 1_000_000),
      followersPerOwner: numberOf(env, 'VMUX_MAX_FOLLOWERS', 500, 1_000_000),
      requestsPerSecond: numberOf(env, 'VMUX_REQUESTS_PER_SECOND', 200, 1_000_000),
      requestBurst: numberOf(env, 'VMUX_REQUEST_BURST', 400, 1_000_000),
      liveSessions: numberOf(env, 'VMUX_LIVE_SESSIONS', 10, 1_000_000),
    },
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}

function previewUrlFrom(env: NodeJS.ProcessEnv, isLoopback: boolean): string | null {
  const text = env.VMUX_PREVIEW_URL || (isLoopback ? 'http://localhost' : '');
  if (text === '') return null;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol) || !/^[^?#]+$/.test(text) || url.pathname !== '/')
    throw new Error('set VMUX_PREVIEW_URL to a URL such as https://preview.example.org');
  return url.href;
}

const namesOf = (text: string | undefined): readonly string[] =>
  (text ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '');

function required(env: NodeJS.ProcessEnv, name: string, what: string): string {
  const value = env[name];
  if (!value) throw new Error(`set ${name} to ${what}`);
  return value;
}

function numberOf(env: NodeJS.ProcessEnv, name: string, otherwise: number, max: number): number {
  const text = env[name];
  if (text === undefined || text === '') return otherwise;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > max)
    throw new Error(`set ${name} to a whole number from 0 to ${max}`);
  return value;
}
