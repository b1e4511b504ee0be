import { join } from 'node:path';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import { type Bus, connectBus } from '@vmux/messaging';
import {
  type EventStoreServer,
  type Nats,
  projectRoot,
  type RunningProcess,
  releaseLater,
  startEventStore,
  startNats,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';

export interface Stack {
  readonly nats: Nats;
  readonly events: EventStoreServer;
  readonly keysDir: string;
  readonly store: EventStore;
  readonly bus: Bus;
}

/** Real servers, and a client of each for the test itself. */
export async function startStack(): Promise<Stack> {
  const [nats, events] = await Promise.all([
    startNats({ jetstream: true }),
    startEventStore({ insecure: true }),
  ]);
  const store = connectEventStore({ url: events.url });
  const bus = await connectBus({ url: nats.url, name: 'test' }, (fault) => {
    throw fault;
  });
  releaseLater(async () => {
    await bus.close();
    await store.close();
  });
  return { nats, events, keysDir: join(temporaryDirectory('keys'), 'keys'), store, bus };
}

export type ServiceProcess = RunningProcess<{ readonly healthPort: number }>;

/** A session service as it ships. */
export const startService = (
  { nats, events, keysDir }: Stack,
  instance = 'one',
  env: NodeJS.ProcessEnv = {},
): Promise<ServiceProcess> =>
  startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/session-service/src/main.js')],
    env: {
      ...process.env,
      EVENTSTORE_URL: events.url,
      NATS_URL: nats.url,
      VMUX_KEYS_DIR: keysDir,
      VMUX_INSTANCE: instance,
      VMUX_HEALTH_PORT: '0',
      VMUX_RELAY: 'off',
      ...env,
    },
    ready: (line) => {
      if (!line.startsWith('{"ready"')) return undefined;
      return JSON.parse(line) as { healthPort: number };
    },
  });

export async function readinessOf({ ready: { healthPort } }: ServiceProcess): Promise<{
  readonly ready: boolean;
  readonly reasons: Readonly<Record<string, string>>;
}> {
  const response = await fetch(`http://127.0.0.1:${healthPort}/ready`);
  return (await response.json()) as Awaited<ReturnType<typeof readinessOf>>;
}
