import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { type Role, renderServerConfig, userOf } from '@vmux/messaging';
import type { DataDirectory } from './data-directory';
import type { PartSettings } from './part';
import { natsImageIn, programsIn } from './programs';

const run = promisify(execFile);
const askForMs = 10_000;
/** Where things are inside the container. */
const inside = { config: '/etc/vmux-nats.conf', store: '/data', port: 4222 } as const;

/** NATS as a part of the stack: a program of this machine, else the container that set-up chose. */
export async function natsPart(
  data: DataDirectory,
  roles: readonly Role[],
  port: number,
): Promise<{ part: PartSettings; url: string }> {
  const url = `nats://127.0.0.1:${port}`;
  const users = roles.map((role) => ({ role, password: data.secret(`nats-${userOf(role)}`) }));
  const store = data.directory('nats');
  const named = { name: 'nats-server', ready: isReady };
  // Servers of the system may lie outside the PATH of an ordinary user.
  const path = `${process.env.PATH ?? ''}:/usr/sbin:/sbin:${programsIn(data.path)}`;
  if (isOn(path, named.name)) {
    const settings = { host: '127.0.0.1', port, jetStreamDirectory: store, users };
    const config = data.write('nats.conf', renderServerConfig(settings));
    return {
      part: { ...named, command: named.name, args: ['--config', config], env: { PATH: path } },
      url,
    };
  }
  const image = imageOf(data.path);
  const settings = { host: '0.0.0.0', port: inside.port, jetStreamDirectory: inside.store, users };
  // Passwords are in the file alone: argv is for everyone on the machine to read.
  const config = data.write('nats.conf', renderServerConfig(settings));
  const args = await containerArguments({ image, config, store, port });
  return { part: { ...named, command: '/bin/sh', args: ['-c', inContainer, ...args] }, url };
}

const isReady = (line: string) => (line.includes('Server is ready') ? {} : undefined);

function imageOf(dataPath: string): string {
  const file = natsImageIn(dataPath);
  if (existsSync(file)) return readFileSync(file, 'utf8').trim();
  throw new Error('there is no nats-server on this machine: vmux doctor says what to install');
}

/** A container outlives the client that was killed: the one before is removed first. */
const inContainer = 'docker rm --force "$0" >/dev/null 2>&1; exec docker run --name "$0" "$@"';

async function containerArguments(nats: {
  readonly image: string;
  readonly config: string;
  readonly store: string;
  readonly port: number;
}): Promise<string[]> {
  const { image, config, store, port } = nats;
  const name = `vmux-nats-${createHash('sha256').update(store).digest('hex').slice(0, 12)}`;
  // The engine of a user maps root to that user already.
  const isUsers = (await engineOptions()).includes('rootless');
  const who = isUsers ? [] : ['--user', `${process.getuid?.()}:${process.getgid?.()}`];
  return [
    name,
    ...['--rm', '--publish', `127.0.0.1:${port}:${inside.port}`, ...who],
    ...['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges'],
    ...['--mount', `type=bind,src=${config},dst=${inside.config},readonly`],
    ...['--mount', `type=bind,src=${store},dst=${inside.store}`],
    ...[image, '--config', inside.config],
  ];
}

async function engineOptions(): Promise<string> {
  try {
    const asked = ['info', '--format', '{{.SecurityOptions}}'];
    return (await run('docker', asked, { timeout: askForMs })).stdout;
  } catch (fault) {
    throw new Error(
      `NATS runs in a container here, and no Docker engine answers (${(fault as Error).message.trim()}): start it, or install nats-server`,
    );
  }
}

function isOn(path: string, name: string): boolean {
  return path.split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, name), constants.X_OK);
      return directory !== '';
    } catch {
      return false;
    }
  });
}
