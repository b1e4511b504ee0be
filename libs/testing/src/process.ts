import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { releaseLater, whenThisProcessDies } from './cleanup';

export interface ProcessOptions<Ready> {
  readonly command: string;
  readonly args?: readonly string[];
  readonly cwd?: string;
  /** The whole environment of the process; the test's own without it. */
  readonly env?: NodeJS.ProcessEnv;
  /** Sees every line of stdout and stderr until it returns something: then the process is ready. */
  readonly ready: (line: string) => Ready | undefined;
  readonly readyTimeoutMs?: number;
  /** Written to the process's stdin, which then ends. */
  readonly input?: string;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface RunningProcess<Ready> {
  readonly pid: number;
  readonly ready: Ready;
  /** What it has written so far, the last 64 KiB of both outputs. */
  output(): string;
  readonly exited: Promise<Exit>;
  /** Sends the signal and waits until the process is gone and reaped. */
  kill(signal?: NodeJS.Signals): Promise<Exit>;
  /** SIGTERM, and SIGKILL when it has not ended after the grace. Ending twice is ending. */
  stop(graceMs?: number): Promise<Exit>;
}

const keptOutputChars = 64 * 1024;

/** Starts a process and waits until it says that it is ready; it never outlives this process. */
export async function startProcess<Ready>(
  options: ProcessOptions<Ready>,
): Promise<RunningProcess<Ready>> {
  const child = spawn(options.command, options.args ?? [], {
    cwd: options.cwd,
    env: options.env,
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    // Its own process group: what it starts can be ended with it.
    detached: true,
  });
  const name = [options.command, ...(options.args ?? [])].join(' ');
  if (child.pid === undefined) {
    const [fault] = await once(child, 'error');
    throw new Error(`${name} cannot be started: ${fault}`);
  }
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(options.input);
  const handle = watch(child, child.pid);
  try {
    const ready = await untilReady(child, handle, options, name);
    return { ...handle, ready };
  } catch (fault) {
    await handle.kill('SIGKILL');
    throw fault;
  }
}

type Handle = Omit<RunningProcess<never>, 'ready'> & {
  onLine(listener: (line: string) => void): void;
};

function watch(child: ChildProcess, pid: number): Handle {
  let kept = '';
  let listeners: ((line: string) => void)[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    createInterface({ input: stream }).on('line', (line) => {
      kept = `${kept}${line}\n`.slice(-keptOutputChars);
      for (const listener of listeners) listener(line);
    });
  }
  const callOff = whenThisProcessDies('kill -9 "-$0"', String(pid));
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => {
      killGroup(pid);
      callOff();
      forget();
      listeners = [];
      resolve({ code, signal });
    });
  });
  const running = () => child.exitCode === null && child.signalCode === null;
  const kill = async (signal: NodeJS.Signals = 'SIGKILL') => {
    if (running()) child.kill(signal);
    return exited;
  };
  const stop = async (graceMs = 5_000) => {
    if (!running()) return exited;
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), graceMs);
    return exited.finally(() => clearTimeout(timer));
  };
  const forget = releaseLater(async () => void (await stop()));
  return {
    pid,
    output: () => kept,
    exited,
    kill,
    stop,
    onLine: (listener) => void listeners.push(listener),
  };
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (fault) {
    const code = (fault as NodeJS.ErrnoException).code;
    // ESRCH: nobody is left in the group. EPERM: on macOS, a group of zombies alone.
    if (code !== 'ESRCH' && code !== 'EPERM') throw fault;
  }
}

async function untilReady<Ready>(
  child: ChildProcess,
  handle: Handle,
  { ready, readyTimeoutMs = 15_000 }: ProcessOptions<Ready>,
  name: string,
): Promise<Ready> {
  let timer: NodeJS.Timeout | undefined;
  const said = new Promise<Ready>((resolve, reject) => {
    handle.onLine((line) => {
      try {
        const value = ready(line);
        if (value !== undefined) resolve(value);
      } catch (fault) {
        reject(fault);
      }
    });
  });
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`${name} was not ready in ${readyTimeoutMs} ms:\n${handle.output()}`)),
      readyTimeoutMs,
    );
  });
  // `close` comes after the last byte of output, so that the message has all of it.
  const gone = once(child, 'close').then(([code, signal]) => {
    throw new Error(`${name} ended (${signal ?? code}) before it was ready:\n${handle.output()}`);
  });
  gone.catch(() => undefined);
  return Promise.race([said, late, gone]).finally(() => clearTimeout(timer));
}
