import { spawnSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, startProcess } from '@vmux/testing';
import { Actor } from './actor';

const DISK_MIB = 1024;

export interface BreakableRedis {
  readonly actor: Actor;
  readonly port: number;
  /** What a gateway needs to find it at this port. */
  env(port: number): NodeJS.ProcessEnv;
}

/** A Redis with a password. */
export async function redisActor(dir: string): Promise<BreakableRedis> {
  const port = await freePort();
  const password = 'password-of-redis';
  const passwordFile = join(dir, 'redis.password');
  writeFileSync(passwordFile, password, { mode: 0o600 });
  // It keeps nothing on disk: a restart empties it.
  const config = ['bind 127.0.0.1', `port ${port}`, `dir "${dir}"`, 'save ""', 'appendonly no'];
  const actor = new Actor('redis', () =>
    startProcess({
      command: 'redis-server',
      args: ['-'],
      env: { PATH: `${process.env.PATH ?? ''}:/usr/sbin` },
      input: [...config, `requirepass ${password}`, ''].join('\n'),
      ready: (line) => (line.includes('Ready to accept connections') ? {} : undefined),
    }),
  );
  const env = (at: number) => ({
    REDIS_URL: `redis://127.0.0.1:${at}`,
    REDIS_PASSWORD_FILE: passwordFile,
  });
  return { actor, port, env };
}

/** A disk that is small enough to be filled, in memory. It goes with the directory that it is in. */
export function mountDisk(at: string): void {
  mkdirSync(at, { recursive: true });
  const { status, stderr } = spawnSync(
    'mount',
    ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=700`, 'vmux-chaos', at],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`no disk of its own for the event store: ${stderr}`);
}

export function fillDisk(directory: string): () => void {
  const file = join(directory, 'filler');
  const fd = openSync(file, 'w');
  const piece = Buffer.alloc(1024 * 1024);
  try {
    for (let bytes = piece.length; bytes >= 4096; ) {
      try {
        writeSync(fd, piece, 0, bytes);
      } catch (fault) {
        if ((fault as NodeJS.ErrnoException).code !== 'ENOSPC') throw fault;
        bytes = Math.floor(bytes / 2);
      }
    }
  } finally {
    closeSync(fd);
  }
  return () => rmSync(file, { force: true });
}
