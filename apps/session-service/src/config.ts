import { hostname } from 'node:os';
import { type EventStoreSettings, eventStoreSettingsFrom } from '@vmux/event-store';
import { type BusSettings, busSettingsFrom } from '@vmux/messaging';
import { type RelaySettings, relaySettingsFrom } from './relay/start-relay';

export interface Config {
  /** How this process is called among the session services. */
  readonly instance: string;
  readonly bus: BusSettings;
  readonly store: EventStoreSettings;
  /** Null: this process keeps no copy in JetStream. */
  readonly relay: RelaySettings | null;
  readonly keysDir: string;
  /** On loopback; 0 for any. */
  readonly healthPort: number;
  /** The embedded store's directory, when this process can look at the room that is left there. */
  readonly storeDir: string | null;
  /** Below this much room output waits; control events still go through. */
  readonly reserveBytes: number;
  readonly logLevel: string;
}

const DEFAULT_RESERVE_MIB = 512;
/** Shorter than a client waits for its answer. */
const STORE_TIMEOUT_MS = 5000;

/** Reads every setting once; says what to set when one is missing or wrong. */
export function configFrom(env: NodeJS.ProcessEnv): Config {
  const instance = env.VMUX_INSTANCE || `${hostname()}-${process.pid}`;
  if (!/^[A-Za-z0-9._-]{1,128}$/.test(instance))
    throw new Error('set VMUX_INSTANCE to letters, digits, dots and dashes, at most 128');
  if (!env.VMUX_KEYS_DIR) throw new Error('set VMUX_KEYS_DIR to the directory of the session keys');
  return {
    instance,
    bus: busSettingsFrom(env, `session-service ${instance}`),
    store: { ...eventStoreSettingsFrom(env), timeoutMs: STORE_TIMEOUT_MS },
    relay: env.VMUX_RELAY === 'off' ? null : relaySettingsFrom(env),
    keysDir: env.VMUX_KEYS_DIR,
    healthPort: numberOf(env, 'VMUX_HEALTH_PORT', 0, 65_535),
    storeDir: env.VMUX_STORE_DIR || null,
    reserveBytes: numberOf(env, 'VMUX_RESERVE_MIB', DEFAULT_RESERVE_MIB, 2 ** 40) * 1024 * 1024,
    logLevel: env.VMUX_LOG_LEVEL || 'info',
  };
}

function numberOf(env: NodeJS.ProcessEnv, name: string, otherwise: number, max: number): number {
  const text = env[name];
  if (text === undefined || text === '') return otherwise;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > max)
    throw new Error(`set ${name} to a whole number from 0 to ${max}`);
  return value;
}
