import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import { inboxPrefixOf, type Role, renderServerConfig, userOf } from '@vmux/messaging';
import {
  freePort,
  projectRoot,
  releaseLater,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';
import type { NsDriverOptions } from '../../apps/runner-local/src/drivers/ns-driver';
import { Actor, FLAWS } from './actor';
import { fillDisk, mountDisk, redisActor } from './breakable';
import { Link } from './link';

export interface Cast {
  readonly dir: string;
  readonly actors: readonly Actor[];
  readonly gateways: readonly string[];
  /** Between the processes and NATS, the event store and Redis; none unless they were asked for. */
  readonly links: readonly Link[];
  /** Between the gateways and the runner's data plane. */
  readonly tunnel: Link | null;
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
  /**
   * Ends these processes at the n-th passing of `<point>:<n>`, from now on; null calls it off. Only of a
   * cast that can be broken.
   */
  crashAt(actors: readonly Actor[], point: string | null): void;
  /** The points at which processes have ended so far. */
  crashes(): readonly string[];
  /** Leaves no room for the event store until the returned function is called; only on a disk of its own. */
  fillDisk(): () => void;
}

export interface Settings {
  /** More of the environment of every gateway. */
  readonly gateway?: NodeJS.ProcessEnv;
  /** More of the environment of the runner. */
  readonly runner?: NodeJS.ProcessEnv;
  /** How many gateways and how many session services. */
  readonly copies?: number;
  /** With a Redis for the gateways, links that can be cut and a disk that can be filled. */
  readonly breakable?: boolean;
  /** JetStream has a copy of the output too. */
  readonly relayOutput?: boolean;
}

const roles: readonly Role[] = ['gateway', 'session-service', 'consumer', { runner: 'local' }];

/** The whole of vmux as real processes: two gateways, two session services, one of everything else. */
export async function assemble({
  gateway = {},
  runner = {},
  copies = 2,
  breakable = false,
  relayOutput = false,
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

  const crashFile = join(dir, 'crash-at');
  const crashable = breakable ? { VMUX_CRASH_FILE: crashFile } : {};
  const storePort = await freePort();
  const storeDir = join(dir, 'event-store');
  if (breakable) mountDisk(storeDir);
  const store = new Actor('event-store', (flaw) =>
    service('event-store', { ...crashable, ...flaw }, [
      '--data',
      storeDir,
      '--port',
      String(storePort),
    ]),
  );
  const links: Link[] = [];
  const linked = async (port: number, from: string, to: string): Promise<number> => {
    if (!breakable) return port;
    const link = await Link.to(port, `${from} → ${to}`);
    links.push(link);
    return link.port;
  };
  await Promise.all([nats.start(), store.start()]);
  const secrets = JSON.parse(
    store.output.split('\n').find((line) => line.startsWith('{"ready"')) ?? '{}',
  );
  const storeUrlAt = (port: number) =>
    `esdb://admin@127.0.0.1:${port}?tls=true&tlsCAFile=${encodeURIComponent(secrets.caFile)}`;
  const storeUrl = storeUrlAt(storePort);

  const shared = {
    ...crashable,
    PATH: process.env.PATH,
    EVENTSTORE_PASSWORD_FILE: secrets.passwordFile,
    VMUX_KEYS_DIR: join(dir, 'keys'),
    VMUX_ARTIFACTS_DIR: join(dir, 'artifacts'),
  };
  const as = async (role: Role, name: string) => ({
    ...shared,
    NATS_URL: `nats://127.0.0.1:${await linked(natsPort, name, 'nats')}`,
    NATS_USER: userOf(role),
    NATS_PASSWORD_FILE: passwordFile(role),
    EVENTSTORE_URL: storeUrlAt(await linked(storePort, name, 'event-store')),
  });
  const redis = breakable ? await redisActor(dir) : null;
  await redis?.actor.start();
  const sandboxesDir = join(dir, 'runner');
  const ports: number[] = [];
  for (let copy = 0; copy < copies; copy++) ports.push(await freePort());
  const others: Actor[] = [];
  const add = async (name: string, app: string, role: Role, env: NodeJS.ProcessEnv) => {
    const own = { ...(await as(role, name)), ...env };
    others.push(new Actor(name, (flaw) => service(app, { ...own, ...flaw })));
  };
  for (const [index] of ports.entries()) {
    const name = `session-service-${index + 1}`;
    await add(name, 'session-service', 'session-service', {
      VMUX_INSTANCE: name,
      ...(relayOutput && { VMUX_RELAY_OUTPUT: 'on' }),
    });
  }
  const tunnelPort = await freePort();
  const tunnel = breakable ? await Link.to(tunnelPort, 'gateways → runner') : null;
  await add(
    'runner',
    'runner-local',
    { runner: 'local' },
    {
      VMUX_RUNNER_DIR: sandboxesDir,
      ...(tunnel && {
        VMUX_TUNNEL_PORT: String(tunnelPort),
        VMUX_TUNNEL_URL: `ws://127.0.0.1:${tunnel.port}/tunnel/1`,
      }),
      ...runner,
    },
  );
  for (const [index, port] of ports.entries()) {
    const name = `gateway-${index + 1}`;
    await add(name, 'gateway', 'gateway', {
      VMUX_PORT: String(port),
      VMUX_DATA_DIR: join(dir, name),
      VMUX_LIVE_SESSIONS: '1000',
      VMUX_REQUESTS_PER_SECOND: '100000',
      VMUX_REQUEST_BURST: '100000',
      ...redis?.env(await linked(redis.port, name, 'redis')),
      ...gateway,
    });
  }
  for (const actor of others) await actor.start();
  const actors = [nats, store, ...(redis ? [redis.actor] : []), ...others];
  releaseLater(async () => {
    for (const actor of [...actors].reverse()) await actor.stop();
  });
  return {
    dir,
    actors,
    gateways: ports.map((port) => `http://127.0.0.1:${port}`),
    links,
    tunnel,
    natsUrl: `nats://127.0.0.1:${natsPort}`,
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
    crashAt: (some, point) => {
      writeFileSync(crashFile, point ?? '');
      for (const actor of some) actor.signal('SIGUSR2');
    },
    crashes: () => linesOf(`${crashFile}.reached`),
    fillDisk: () => fillDisk(storeDir),
  };
}

const linesOf = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];

const service = (name: string, env: NodeJS.ProcessEnv, args: readonly string[] = []) =>
  startProcess({
    command: process.execPath,
    args: [
      ...(FLAWS.some((flaw) => env[flaw]) ? ['--require', preload()] : []),
      join(projectRoot(), `dist/apps/${name}/src/main.js`),
      ...args,
    ],
    env: { PATH: process.env.PATH, VMUX_LOG_LEVEL: 'warn', ...env },
    ready: (line) => (line.startsWith('{"ready":true') ? {} : undefined),
    readyTimeoutMs: 30_000,
  });

const preload = (): string => join(projectRoot(), 'dist/test/support/preload.js');
