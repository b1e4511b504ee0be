import type { EventStore } from '@vmux/event-store';
import type { NatsConnection } from 'nats';
import { eventCopy, outputCopy } from './copy';
import { dropCopy } from './copy-stream';
import { CopyRelay, type RelayLog, type RelayStatus } from './relay';

export interface RelaySettings {
  /** Whether output is copied too. */
  readonly output: boolean;
  /** Above these the oldest messages of a copy are dropped; null: never. */
  readonly maxEventBytes: number | null;
  readonly maxOutputBytes: number | null;
  readonly replicas: number;
}

export interface RelayOptions {
  readonly store: EventStore;
  readonly connection: NatsConnection;
  readonly settings: RelaySettings;
  readonly log: RelayLog;
}

export interface Relay {
  readonly status: readonly RelayStatus[];
  stop(): Promise<void>;
}

const MiB = 1024 * 1024;

/**
 * Keeps JetStream's copies of the histories. Any number of processes may do so at once: the copies come
 * out the same. Needs neither NATS nor the event store to be there when it starts.
 */
export function startRelay({ store, connection, settings, log }: RelayOptions): Relay {
  const common = {
    replicas: settings.replicas,
    timeoutMs: 3_000,
    maxInFlight: 256,
    maxBytesInFlight: 4 * MiB,
    standbyMs: 1_000,
    maxBackoffMs: 2_000,
  };
  const { maxEventBytes, maxOutputBytes } = settings;
  const relays = [
    new CopyRelay(eventCopy, store, connection, { ...common, maxBytes: maxEventBytes }, log),
    ...(settings.output
      ? [new CopyRelay(outputCopy, store, connection, { ...common, maxBytes: maxOutputBytes }, log)]
      : []),
  ];
  const stopping = new AbortController();
  const dropping = settings.output
    ? Promise.resolve()
    : dropCopy(connection, outputCopy, stopping.signal, log);
  return {
    get status() {
      return relays.map(({ status }) => status);
    },
    stop: async () => {
      stopping.abort();
      await Promise.all([dropping, ...relays.map((relay) => relay.stop())]);
    },
  };
}

/**
 * VMUX_RELAY_OUTPUT=on copies output too, and off removes that copy; VMUX_RELAY_EVENTS_MIB (default: no limit),
 * VMUX_RELAY_OUTPUT_MIB (default 1024; 0: no limit) and VMUX_RELAY_REPLICAS (default 1) bound the copies.
 */
export function relaySettingsFrom(env: NodeJS.ProcessEnv): RelaySettings {
  const output = env.VMUX_RELAY_OUTPUT || 'off';
  if (output !== 'on' && output !== 'off') throw new Error('set VMUX_RELAY_OUTPUT to on or off');
  return {
    output: output === 'on',
    maxEventBytes: bytesOf(env, 'VMUX_RELAY_EVENTS_MIB', 0),
    maxOutputBytes: bytesOf(env, 'VMUX_RELAY_OUTPUT_MIB', 1024),
    replicas: wholeNumber(env, 'VMUX_RELAY_REPLICAS', 1, 1, 5),
  };
}

function bytesOf(env: NodeJS.ProcessEnv, name: string, otherwise: number): number | null {
  const mib = wholeNumber(env, name, otherwise, 0, 2 ** 30);
  return mib === 0 ? null : mib * MiB;
}

function wholeNumber(
  env: NodeJS.ProcessEnv,
  name: string,
  otherwise: number,
  min: number,
  max: number,
): number {
  const text = env[name];
  if (text === undefined || text === '') return otherwise;
  const value = Number(text);
  if (!Number.isInteger(value) || value < min || value > max)
    throw new Error(`set ${name} to a whole number from ${min} to ${max}`);
  return value;
}
