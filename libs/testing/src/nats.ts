import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from './cleanup';
import { startProcess } from './process';
import { type Server, server } from './server';

export interface NatsUser {
  readonly user: string;
  readonly password: string;
  /** Subjects; without it the user may do everything. */
  readonly permissions?: {
    readonly publish?: readonly string[];
    readonly subscribe?: readonly string[];
    /** May answer requests that it receives. */
    readonly allowResponses?: boolean;
  };
}

export interface NatsOptions {
  /** With file storage in a temporary directory. */
  readonly jetstream?: boolean;
  /** Without users everyone may do everything. */
  readonly users?: readonly NatsUser[];
  /** More lines of the server's configuration file. */
  readonly config?: string;
}

export interface Nats extends Server {
  readonly host: string;
  readonly port: number;
  /** `nats://127.0.0.1:<port>`, without credentials. */
  readonly url: string;
}

/** A nats-server of this test's own, on a free loopback port. */
export async function startNats(options: NatsOptions = {}): Promise<Nats> {
  const dir = temporaryDirectory('nats');
  const start = (port: number) => {
    const file = join(dir, 'nats.conf');
    writeFileSync(file, configuration(dir, port, options), { mode: 0o600 });
    let listening: number | undefined;
    return startProcess({
      command: 'nats-server',
      args: ['--config', file],
      env: withSystemPath(),
      ready: (line) => {
        listening ??= portIn(line);
        return line.includes('Server is ready') ? listening : undefined;
      },
    });
  };
  const first = await start(-1);
  const port = first.ready;
  const handle = server(first, () => start(port));
  return Object.assign(handle, { host: '127.0.0.1', port, url: `nats://127.0.0.1:${port}` });
}

const portIn = (line: string): number | undefined => {
  const port = /Listening for client connections on .*:(\d+)$/.exec(line)?.[1];
  return port === undefined ? undefined : Number(port);
};

/** Servers of the system may lie outside the PATH of an ordinary user. */
export const withSystemPath = (): NodeJS.ProcessEnv => ({
  ...process.env,
  PATH: `${process.env.PATH ?? ''}:/usr/sbin:/sbin`,
});

function configuration(
  dir: string,
  port: number,
  { jetstream, users, config }: NatsOptions,
): string {
  const lines = [`host: 127.0.0.1`, `port: ${port}`, `server_name: test`];
  if (jetstream) lines.push(`jetstream { store_dir: ${JSON.stringify(join(dir, 'jetstream'))} }`);
  if (users) lines.push(`authorization { users: [`, ...users.map(userLine), `] }`);
  if (config) lines.push(config);
  return `${lines.join('\n')}\n`;
}

function userLine({ user, password, permissions }: NatsUser): string {
  const allowed = permissions && {
    publish: { allow: permissions.publish ?? [] },
    subscribe: { allow: permissions.subscribe ?? [] },
    ...(permissions.allowResponses ? { allow_responses: true } : {}),
  };
  return JSON.stringify({ user, password, ...(allowed ? { permissions: allowed } : {}) });
}
