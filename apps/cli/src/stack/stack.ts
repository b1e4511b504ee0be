import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { type Role, userOf } from '@vmux/messaging';
import type { DataDirectory } from './data-directory';
import { extrasNamed } from './extras';
import { natsPart } from './nats';
import { type Part, type PartSettings, readyJson, startPart } from './part';

export interface StackSettings {
  readonly data: DataDirectory;
  /** Of the gateway; 0 for any. */
  readonly port: number;
  /** Where the built programs are. */
  readonly dist: string;
  /** Emulated providers to add, by name. */
  readonly extras?: string;
  readonly log: (part: string, line: string) => void;
  /** Told of every process as soon as it exists. */
  readonly onPart?: (name: string, pid: number) => void;
}

export interface Stack {
  readonly url: string;
  /** Holds the local user's API key. */
  readonly keyFile: string;
  stop(): Promise<void>;
}

type Ready = Awaited<Part['ready']>;

const runnerId = 'local';
const usualRoles: readonly Role[] = [
  'gateway',
  'session-service',
  'consumer',
  { runner: runnerId },
];
/** The one user of this machine shares it with nobody: what runs is bounded by the runner. */
const liveSessions = '200';
const firstPauseMs = 200;
const longestPauseMs = 10_000;

/** Starts the whole of vmux on this machine: every listener on loopback, every one with a password. */
export async function startStack(settings: StackSettings): Promise<Stack> {
  const running: KeptPart[] = [];
  const stop = async () => {
    for (const part of running.reverse()) await part.stop();
  };
  const start = async (part: PartSettings): Promise<Ready> => {
    const onSpawn = (pid: number) => settings.onPart?.(part.name, pid);
    const kept = new KeptPart({ ...part, onSpawn }, settings.log);
    running.push(kept);
    return kept.start();
  };
  try {
    const { data } = settings;
    const extras = extrasNamed(settings.extras ?? '');
    const roles = [...usualRoles, ...extras.map(({ runnerId: runner }) => ({ runner }))];
    const service = (name: string) => ({
      command: process.execPath,
      args: [join(resolve(settings.dist), 'apps', name, 'src/main.js')],
      ready: readyJson,
    });
    const nats = await natsPart(data, roles, await freePort());
    const store = await eventStorePart(data, service('event-store'));
    const [, { port, caFile, passwordFile }] = await Promise.all([start(nats.part), start(store)]);
    const shared = {
      NATS_URL: nats.url,
      EVENTSTORE_URL: `esdb://admin@127.0.0.1:${port}?tls=true&tlsCAFile=${encodeURIComponent(String(caFile))}`,
      EVENTSTORE_PASSWORD_FILE: String(passwordFile),
      VMUX_KEYS_DIR: data.directory('keys'),
      VMUX_ARTIFACTS_DIR: data.directory('artifacts'),
      VMUX_DATA_DIR: data.path,
    };
    const as = (role: Role) => ({
      ...shared,
      NATS_USER: userOf(role),
      NATS_PASSWORD_FILE: data.secretFile(`nats-${userOf(role)}`),
    });
    const storeDir = data.directory('event-store');
    const gatewayPort = settings.port === 0 ? await freePort() : settings.port;
    await Promise.all([
      start({
        name: 'session-service',
        ...service('session-service'),
        env: { ...as('session-service'), VMUX_STORE_DIR: storeDir },
      }),
      start({
        name: 'runner-local',
        ...service('runner-local'),
        env: {
          ...as({ runner: runnerId }),
          VMUX_RUNNER_ID: runnerId,
          VMUX_RUNNER_DIR: data.directory('runner'),
        },
      }),
      ...extras.map((extra) =>
        extra.start({
          data,
          dist: resolve(settings.dist),
          runnerEnv: as({ runner: extra.runnerId }),
          freePort,
          start,
        }),
      ),
      start({
        name: 'gateway',
        ...service('gateway'),
        env: {
          ...as('gateway'),
          VMUX_PORT: String(gatewayPort),
          VMUX_LIVE_SESSIONS: process.env.VMUX_LIVE_SESSIONS || liveSessions,
          // The user of this stack is who runs it.
          VMUX_ALLOW_HOSTS: process.env.VMUX_ALLOW_HOSTS ?? '*',
        },
      }),
    ]);
    return { url: `http://127.0.0.1:${gatewayPort}`, keyFile: join(data.path, 'api-key'), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function eventStorePart(
  data: DataDirectory,
  service: Omit<PartSettings, 'name'>,
): Promise<PartSettings> {
  // A port of its own choosing would be another one after a restart.
  const port = String(await freePort());
  const args = [...service.args, '--data', data.directory('event-store'), '--port', port];
  return { ...service, name: 'event-store', args };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const address = server.address();
  await new Promise((done) => server.close(done));
  if (address === null || typeof address === 'string') throw new Error('no port was given');
  return address.port;
}

/** A part that is started again when it ends by itself: every part recovers from its own death. */
class KeptPart {
  private part: Part | undefined;
  private stopping = false;

  constructor(
    private readonly settings: PartSettings,
    private readonly log: (part: string, line: string) => void,
  ) {}

  async start(): Promise<Ready> {
    this.part = startPart(this.settings, this.log);
    const ready = await this.part.ready;
    void this.keep();
    return ready;
  }

  async stop(): Promise<void> {
    this.stopping = true;
    await this.part?.stop();
  }

  private async keep(): Promise<void> {
    for (
      let pauseMs = firstPauseMs;
      !this.stopping;
      pauseMs = Math.min(pauseMs * 2, longestPauseMs)
    ) {
      const how = await this.part?.exited;
      if (this.stopping) return;
      this.log(this.settings.name, `ended (${how}): starting it again in ${pauseMs} ms`);
      await new Promise((done) => setTimeout(done, pauseMs));
      if (this.stopping) return;
      try {
        this.part = startPart(this.settings, this.log);
        await this.part.ready;
        pauseMs = firstPauseMs;
      } catch (error) {
        this.log(this.settings.name, error instanceof Error ? error.message : String(error));
      }
    }
  }
}
