import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { DriverRefused, DriverUnavailable } from '@vmux/runner-kit';

/** What the launcher's exit status says; see native/ns-launcher/src/common.h. */
const USAGE = 2;
const REFUSED = 3;
const keptBytes = 64 * 1024;
export const PROGRAM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Runs one native program and resolves with what it printed. It is its own process group, so that a signal
 * to the runner's does not reach it: what it began it finishes or undoes.
 */
export async function runProgram(
  program: string,
  args: readonly string[],
  signal?: AbortSignal,
): Promise<string> {
  signal?.throwIfAborted();
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: PROGRAM_PATH, LANG: 'C' },
    cwd: '/',
    detached: true,
  });
  const kill = () => child.kill('SIGKILL');
  signal?.addEventListener('abort', kill, { once: true });
  const printed = { stdout: '', stderr: '' };
  child.stdout.on('data', (data) => keep('stdout', data));
  child.stderr.on('data', (data) => keep('stderr', data));
  const keep = (stream: 'stdout' | 'stderr', data: Buffer) => {
    printed[stream] = (printed[stream] + data.toString()).slice(-keptBytes);
  };
  try {
    const ended = await new Promise<{ code: number | null; signal: string | null }>(
      (resolve, reject) => {
        child.once('error', reject);
        child.once('close', (code, killedBy) => resolve({ code, signal: killedBy }));
      },
    ).catch((fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT')
        throw new DriverRefused('unsupported', `${program} is missing: install it`);
      throw new DriverUnavailable(`${program} cannot be started`, { cause: fault });
    });
    signal?.throwIfAborted();
    if (ended.code === 0) return printed.stdout;
    const said = printed.stderr.trim() || `it ended with ${ended.signal ?? ended.code}`;
    if (ended.code === USAGE) throw new DriverRefused('invalid', said);
    if (ended.code === REFUSED) throw new DriverRefused('unsupported', said);
    throw new DriverUnavailable(said);
  } finally {
    signal?.removeEventListener('abort', kill);
  }
}

/** A connection to a supervisor that listens there. */
export async function connectTo(path: string, signal?: AbortSignal): Promise<Socket> {
  signal?.throwIfAborted();
  const socket = connect(path);
  const abort = () => socket.destroy(new DriverUnavailable('the caller gave up'));
  signal?.addEventListener('abort', abort, { once: true });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return socket;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
