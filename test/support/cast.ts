import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import { inboxPrefixOf, type Role, renderServerConfig, userOf } from '@vmux/messaging';
import {
  freePort,
  projectRoot,
  type RunningProcess,
  releaseLater,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';
import type { NsDriverOptions } from '../../apps/runner-local/src/drivers/ns-driver';

/** A process of the stack that can be killed, frozen and started again on the same port and data. */
export class Actor {
  private process: RunningProcess<unknown> | undefined;

  constructor(
    readonly name: string,
    private readonly launch: () => Promise<RunningProcess<unknown>>,
    /** Forgets what it kept, while it is down. */
    readonly forget: () => void = () => undefined,
  ) {}

  get isUp(): boolean {
    return this.process !== undefined;
  }

  get pid(): number | undefined {
    return this.process?.pid;
  }

  get output(): string {
    return this.process?.output() ?? '';
  }

  async start(): Promise<void> {
    // A start may meet a peer that is down: whoever supervises processes tries again.
    for (let attempt = 1; ; attempt++) {
      try {
        this.process = await this.launch();
        return;
      } catch (fault) {
        if (attempt === 5) throw fault;
      }
    }
  }

  async kill(): Promise<void> {
    const process = this.process;
    this.process = undefined;
    await process?.kill('SIGKILL');
  }

  async stop(): Promise<void> {
    const process = this.process;
    this.process = undefined;
    await process?.stop(10_000);
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    if (this.process) process.kill(this.process.pid, signal);
  }
}

export interface Cast {
  readonly dir: string;
  readonly actors: readonly Actor[];
  readonly gateways: readonly string[];
  readonly natsUrl: string;
  readonly natsLogin: {
    readonly user: string;
    readonly pass: string;
    readonly inboxPrefix: string;
  };
  /** Where the runner keeps its sandboxes. */
  readonly sandboxesDir: string;
  /** How to find those sandboxes without the runner. */
  readonly driver: NsDriverOptions;
  apiKey(): string;
  /** A client of the event store that nothing of the stack shares. */
  openStore(): EventStore;
}

export interface Settings {
  /** More of the environment of every gateway. */
  readonly gateway?: NodeJS.ProcessEnv;
  /** More of the environment of the runner. */
  readonly runner?: NodeJS.ProcessEnv;
  /** How many gateways and how many session services. */
  readonly copies?: number;
}

const roles: readonly Role[] = ['gateway', 'session-service', 'consumer', { runner: 'local' }];

/** The whole of vmux as real processes: two gateways, two session services, one of everything else. */
export async function assemble({
  gateway = {},
  runner = {},
  copies = 2,
}: Settings = {}): Promise<Cast> {
  const dir = temporaryDirectory('chaos');
  const passwordFile = (role: Role) => join(dir, `${userOf(role)}.password`);
  const passwordOf = (role: Role) => `password-of-${userOf(role)}`;
  for (const role of roles) writeFileSync(passwordFile(role), passwordOf(role), { mode: 0o600 });

  const natsPort = await freePort();
  const natsConfig = join(dir, 'nats.conf');
  const jetStreamDirectory = join(dir, 'nats');
  writeFileSync(
    natsConfig,
    renderServerConfig({
      host: '127.0.0.1',
      port: natsPort,
      jetStreamDirectory,
      users: roles.map((role) => ({ role, password: passwordOf(role) })),
    }),
    { mode: 0o600 },
  );
  const nats = new Actor(
    'nats',
    () =>
      startProcess({
        command: 'nats-server',
        args: ['--config', natsConfig],
        env: { ...process.env, PATH: `${process.env.PATH ?? ''}:/usr/sbin` },
        ready: (line) => (line.includes('Server is ready') ? {} : undefined),
      }),
    () => rmSync(jetStreamDirectory, { recursive: true, force: true }),
  );

  const storePort = await freePort();
  const storeDir = join(dir, 'event-store');
  const store = new Actor('event-store', () =>
    service('event-store', {}, ['--data', storeDir, '--port', String(storePort)]),
  );
  await Promise.all([nats.start(), store.start()]);
  const secrets = JSON.parse(
    store.output.split('\n').find((line) => line.startsWith('{"ready"')) ?? '{}',
  );
  const storeUrl = `esdb://admin@127.0.0.1:${storePort}?tls=true&tlsCAFile=${encodeURIComponent(secrets.caFile)}`;

  const shared = {
    PATH: process.env.PATH,
    NATS_URL: `nats://127.0.0.1:${natsPort}`,
    EVENTSTORE_URL: storeUrl,
    EVENTSTORE_PASSWORD_FILE: secrets.passwordFile,
    VMUX_KEYS_DIR: join(dir, 'keys'),
    VMUX_ARTIFACTS_DIR: join(dir, 'artifacts'),
  };
  const as = (role: Role) => ({
    ...shared,
    NATS_USER: userOf(role),
    NATS_PASSWORD_FILE: passwordFile(role),
  });
  const sandboxesDir = join(dir, 'runner');
  const ports: number[] = [];
  for (let copy = 0; copy < copies; copy++) ports.push(await freePort());
  const others = [
    ...ports.map((_, index) => {
      const name = `session-service-${index + 1}`;
      return new Actor(name, () =>
        service('session-service', { ...as('session-service'), VMUX_INSTANCE: name }),
      );
    }),
    new Actor('runner', () =>
      service('runner-local', {
        ...as({ runner: 'local' }),
        VMUX_RUNNER_DIR: sandboxesDir,
        ...runner,
      }),
    ),
    ...ports.map(
      (port, index) =>
        new Actor(`gateway-${index + 1}`, () =>
          service('gateway', {
            ...as('gateway'),
            VMUX_PORT: String(port),
            VMUX_DATA_DIR: join(dir, `gateway-${index + 1}`),
            VMUX_LIVE_SESSIONS: '1000',
            VMUX_REQUESTS_PER_SECOND: '100000',
            VMUX_REQUEST_BURST: '100000',
            ...gateway,
          }),
        ),
    ),
  ];
  for (const actor of others) await actor.start();
  const actors = [nats, store, ...others];
  releaseLater(async () => {
    for (const actor of [...actors].reverse()) await actor.stop();
  });
  return {
    dir,
    actors,
    gateways: ports.map((port) => `http://127.0.0.1:${port}`),
    natsUrl: shared.NATS_URL,
    natsLogin: {
      user: 'consumer',
      pass: passwordOf('consumer'),
      inboxPrefix: inboxPrefixOf('consumer'),
    },
    sandboxesDir: join(sandboxesDir, 'ns/s'),
    driver: {
      dataDir: join(sandboxesDir, 'ns'),
      launcherPath: join(projectRoot(), 'dist/native/vmux-ns'),
      supervisorPath: join(projectRoot(), 'dist/native/vmux-supervisor'),
    },
    apiKey: () => readFileSync(join(dir, 'gateway-1/api-key'), 'utf8').trim(),
    openStore: () => connectEventStore({ url: storeUrl, passwordFile: secrets.passwordFile }),
  };
}

const service = (name: string, env: NodeJS.ProcessEnv, args: readonly string[] = []) =>
  startProcess({
    command: process.execPath,
    args: [join(projectRoot(), `dist/apps/${name}/src/main.js`), ...args],
    env: { PATH: process.env.PATH, VMUX_LOG_LEVEL: 'warn', ...env },
    ready: (line) => (line.startsWith('{"ready":true') ? {} : undefined),
    readyTimeoutMs: 30_000,
  });
