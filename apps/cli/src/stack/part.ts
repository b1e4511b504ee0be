import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** One process of the stack. */
export interface PartSettings {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Sees each line of stdout and stderr until it returns what the part says of itself when it is ready. */
  readonly ready: (line: string) => Readonly<Record<string, unknown>> | undefined;
  readonly onSpawn?: (pid: number) => void;
}

export interface Part {
  /** What it says of itself once it serves; fails when it ends before. */
  readonly ready: Promise<Readonly<Record<string, unknown>>>;
  /** How it ended. */
  readonly exited: Promise<string>;
  /** Also while it is not ready yet. */
  stop(graceMs?: number): Promise<void>;
}

/** Our own processes say one line of JSON when they serve. */
export function readyJson(line: string): Readonly<Record<string, unknown>> | undefined {
  if (!line.startsWith('{"ready":true')) return undefined;
  return JSON.parse(line) as Record<string, unknown>;
}

/** Starts a part; what it says of itself goes to the log. */
export function startPart(settings: PartSettings, log: (name: string, line: string) => void): Part {
  const child = spawn(settings.command, [...settings.args], {
    env: { ...process.env, ...settings.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
  if (child.pid !== undefined) settings.onSpawn?.(child.pid);
  const ready = Promise.race([
    readiness(child, settings, log),
    exited.then((how) => {
      throw new Error(`${settings.name} ended before it was ready (${how}): see its lines above`);
    }),
  ]);
  ready.catch(() => undefined);
  return { ready, exited, stop: (grace) => stop(child, exited, grace) };
}

function readiness(
  child: ChildProcess,
  settings: PartSettings,
  log: (name: string, line: string) => void,
): Promise<Readonly<Record<string, unknown>>> {
  return new Promise((resolve) => {
    let waiting = true;
    for (const stream of [child.stdout, child.stderr]) {
      if (!stream) continue;
      createInterface({ input: stream }).on('line', (line) => {
        const said = waiting ? settings.ready(line) : undefined;
        if (said) {
          waiting = false;
          resolve(said);
          return;
        }
        log(settings.name, line);
      });
    }
  });
}

async function stop(child: ChildProcess, exited: Promise<string>, graceMs = 10_000): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs);
  await exited;
  clearTimeout(timer);
}
