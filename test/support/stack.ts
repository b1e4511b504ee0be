import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import { type Bus, connectBus, inboxPrefixOf } from '@vmux/messaging';
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
import { ApiClient } from './api-client';
import { FakeRunner, type Offer } from './fake-runner';

/**
 * Real servers with passwords and TLS, as in production, and a client of each for the test itself.
 * The processes under test are started one by one; the runner is a fake. A cast has them all.
 */
export interface Stack {
  readonly dir: string;
  readonly keysDir: string;
  readonly nats: Nats;
  readonly events: EventStoreServer;
  readonly store: EventStore;
  readonly bus: Bus;
  readonly env: NodeJS.ProcessEnv;
}

const ROLES = ['test', 'gateway', 'session-service'] as const;

export async function startStack(): Promise<Stack> {
  const dir = temporaryDirectory('stack');
  const passwordOf = (role: string) => `password-of-${role}`;
  const users = ROLES.map((user) => ({ user, password: passwordOf(user) }));
  for (const role of ROLES)
    writeFileSync(join(dir, `${role}.password`), passwordOf(role), { mode: 0o600 });
  const [nats, events] = await Promise.all([
    startNats({ jetstream: true, users }),
    startEventStore(),
  ]);
  const store = connectEventStore({ url: events.url });
  const bus = await connectBus(
    {
      ...{ url: nats.url, name: 'test', user: 'test', password: passwordOf('test') },
      inboxPrefix: inboxPrefixOf('test'),
    },
    (fault) => {
      throw fault;
    },
  );
  releaseLater(async () => {
    await bus.close();
    await store.close();
  });
  const keysDir = join(dir, 'keys');
  const env = {
    PATH: process.env.PATH,
    EVENTSTORE_URL: events.urlWithoutPassword,
    EVENTSTORE_PASSWORD_FILE: events.passwordFile,
    NATS_URL: nats.url,
    VMUX_KEYS_DIR: keysDir,
    VMUX_ARTIFACTS_DIR: join(dir, 'artifacts'),
  };
  return { dir, keysDir, nats, events, store, bus, env };
}

export function startRunner(stack: Stack, offer?: Offer): FakeRunner {
  const runner = new FakeRunner(stack.bus, offer);
  releaseLater(() => runner.stop());
  return runner;
}

export type ServiceProcess = RunningProcess<{ readonly healthPort: number }>;

/** A session service as it ships. */
export const startService = (
  stack: Stack,
  instance = 'one',
  env: NodeJS.ProcessEnv = {},
): Promise<ServiceProcess> =>
  startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/session-service/src/main.js')],
    env: {
      ...stack.env,
      ...roleOf(stack, 'session-service'),
      ...{ VMUX_INSTANCE: instance, VMUX_RELAY: 'off' },
      ...env,
    },
    ready: readyLine<{ healthPort: number }>,
  });

export async function readinessOf({ ready: { healthPort } }: ServiceProcess): Promise<{
  readonly ready: boolean;
  readonly reasons: Readonly<Record<string, string>>;
}> {
  const response = await fetch(`http://127.0.0.1:${healthPort}/ready`);
  return (await response.json()) as Awaited<ReturnType<typeof readinessOf>>;
}

export interface Gateway {
  readonly process: RunningProcess<{ readonly port: number }>;
  readonly port: number;
  readonly url: string;
  /** Everything that it has written so far to its outputs. */
  log(): string;
  /** As the local user, with all scopes. */
  readonly api: ApiClient;
}

export async function startGateway(
  stack: Stack,
  name = 'gateway-1',
  env: NodeJS.ProcessEnv = {},
): Promise<Gateway> {
  const dataDir = join(stack.dir, name);
  const lines: string[] = [];
  const process_ = await startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/gateway/src/main.js')],
    env: { ...stack.env, ...roleOf(stack, 'gateway'), VMUX_DATA_DIR: dataDir, ...env },
    ready: (line) => {
      lines.push(line);
      return readyLine<{ port: number }>(line);
    },
  });
  const { port } = process_.ready;
  const url = `http://127.0.0.1:${port}`;
  const key = readFileSync(join(dataDir, 'api-key'), 'utf8').trim();
  const log = () => process_.output();
  return { process: process_, port, url, log, api: new ApiClient(url, key) };
}

/** What a process of that role is told; `test` may do anything. */
export const roleOf = ({ dir }: Stack, user: (typeof ROLES)[number]): NodeJS.ProcessEnv => ({
  NATS_USER: user,
  NATS_PASSWORD_FILE: join(dir, `${user}.password`),
});

function readyLine<T>(line: string): T | undefined {
  if (!line.startsWith('{"ready"')) return undefined;
  return JSON.parse(line) as T;
}
