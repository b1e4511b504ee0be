import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  connectEventStore,
  type EventStore,
  type NewEvent,
  type RecordedEvent,
} from '@vmux/event-store';
import { EVENT_RELAY_STREAM, sessionStream } from '@vmux/events';
import { inboxPrefixOf, renderServerConfig } from '@vmux/messaging';
import {
  type EventStoreServer,
  type Nats,
  projectRoot,
  seededRandom,
  startEventStore,
  startNats,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';
import { connect, type JetStreamManager, type NatsConnection, type StoredMsg } from 'nats';

export interface Copied {
  readonly sequence: number;
  readonly subject: string;
  /** Null for a message that is no relay's. */
  readonly position: string | null;
  readonly headers: ReadonlyMap<string, string>;
  readonly data: Buffer;
}

export interface World {
  readonly nats: Nats;
  readonly eventStore: EventStoreServer;
  readonly store: EventStore;
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  /** As a machine that lost its disk: JetStream comes back without anything. */
  loseJetStream(): Promise<void>;
  close(): Promise<void>;
}

export async function startWorld(natsConfig = ''): Promise<World> {
  const dir = join(temporaryDirectory('jetstream'), 'store');
  const nats = await startNats({
    config: `jetstream { store_dir: ${JSON.stringify(dir)} }\n${natsConfig}`,
  });
  return worldWith(nats, dir);
}

async function worldWith(nats: Nats, dir: string, login: Login = {}): Promise<World> {
  const eventStore = await startEventStore({ insecure: true });
  const store = connectEventStore({ url: eventStore.url });
  const connection = await connect({
    servers: nats.url,
    ...login,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 50,
  });
  return {
    nats,
    eventStore,
    store,
    connection,
    manager: await connection.jetstreamManager({ checkAPI: false }),
    loseJetStream: async () => {
      await nats.kill();
      rmSync(dir, { recursive: true, force: true });
      await nats.restart();
    },
    close: async () => {
      await connection.close();
      await store.close();
    },
  };
}

interface Login {
  readonly user?: string;
  readonly pass?: string;
  readonly inboxPrefix?: string;
}

/** With the users and permissions of production; the test itself is a session service. */
export async function startGuardedWorld() {
  const dir = temporaryDirectory('guarded');
  const roles = ['session-service', 'consumer'] as const;
  const passwordOf = (role: string) => `password of ${role}`;
  for (const role of roles) writeFileSync(join(dir, role), passwordOf(role), { mode: 0o600 });
  const nats = await startNats({
    config: renderServerConfig({
      host: '127.0.0.1',
      port: -1,
      jetStreamDirectory: join(dir, 'jetstream'),
      users: roles.map((role) => ({ role, password: passwordOf(role) })),
    }),
  });
  const user = 'session-service';
  const login = { user, pass: passwordOf(user), inboxPrefix: inboxPrefixOf(user) };
  const world = await worldWith(nats, dir, login);
  const envOf = (role: (typeof roles)[number]): NodeJS.ProcessEnv => ({
    NATS_USER: role,
    NATS_PASSWORD_FILE: join(dir, role),
  });
  return { world, envOf };
}

const random = seededRandom(7);

export const anEvent = (type: string, data: NewEvent['data'] = {}, metadata = {}): NewEvent => ({
  id: random.uuid(),
  type,
  data,
  metadata,
});

/** Events of several sessions, in appends of one to four. */
export async function history(store: EventStore, sessions: readonly string[], events: number) {
  for (let written = 0; written < events; ) {
    const count = Math.min(events - written, 1 + random.integer(4));
    const batch = Array.from({ length: count }, (_, index) =>
      anEvent(random.pick(['ExecIssued', 'ExecStarted', 'ExecExited']), { n: written + index }),
    );
    await store.append(sessionStream(random.pick(sessions)), 'any', batch);
    written += count;
  }
}

/** Everything that the store has below the prefixes, in order of position. */
export async function everything(
  store: EventStore,
  prefixes: readonly string[] = ['session-'],
): Promise<RecordedEvent[]> {
  const events: RecordedEvent[] = [];
  const end = new AbortController();
  for await (const item of store.subscribe({ prefixes }, end.signal)) {
    if (item.kind === 'event') events.push(item.event);
    if (item.kind === 'caughtUp') break;
  }
  end.abort();
  return events;
}

const READ_AT_ONCE = 100;

/** Null for one that was purged. */
const messageAt = (manager: JetStreamManager, stream: string, seq: number) =>
  manager.streams.getMessage(stream, { seq }).catch((error: { api_error?: { code: number } }) => {
    if (error.api_error?.code === 404) return null;
    throw error;
  });

/** What stands in a copy, in order of sequence. */
export async function copied(
  manager: JetStreamManager,
  stream = EVENT_RELAY_STREAM,
): Promise<Copied[]> {
  const { state } = await manager.streams.info(stream);
  const sequences = Array.from(
    { length: state.messages === 0 ? 0 : state.last_seq - state.first_seq + 1 },
    (_, index) => state.first_seq + index,
  );
  const found: (StoredMsg | null)[] = [];
  // A few at a time: thousands of requests at once run into one another's time-outs.
  while (sequences.length > 0) {
    const some = sequences.splice(0, READ_AT_ONCE).map((seq) => messageAt(manager, stream, seq));
    found.push(...(await Promise.all(some)));
  }
  return found.flatMap((message) =>
    message === null
      ? []
      : [
          {
            sequence: message.seq,
            subject: message.subject,
            position: message.header?.get('Vmux-Position') || null,
            headers: new Map(
              message.header
                ? [...message.header].map(([name, [value = '']]) => [name, value])
                : [],
            ),
            data: Buffer.from(message.data),
          },
        ],
  );
}

export const positionsOf = (events: readonly RecordedEvent[]): string[] =>
  events.map(({ position }) => String(position));

/** A relay in a process of its own. */
export const startRelayProcess = (world: World, env: NodeJS.ProcessEnv = {}) =>
  startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/session-service/src/relay/relay-main.js')],
    env: { ...process.env, NATS_URL: world.nats.url, EVENTSTORE_URL: world.eventStore.url, ...env },
    ready: (line) => (line.includes('"ready":true') ? true : undefined),
  });
