import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { projectRoot, releaseLater } from '@vmux/testing';

export interface Ended {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  stdout(): string;
  /** Whether anything has come. */
  hasSaid(): boolean;
}

/** The real command line client, as a process. */
export function startCli(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  wrapped?: (node: string, program: string) => readonly string[],
): RunningCli {
  const program = join(projectRoot(), 'dist/apps/cli/src/main.js');
  const [command = process.execPath, ...rest] = wrapped?.(process.execPath, program) ?? [
    process.execPath,
    // As ./vmux does: Node would take --env-file for its own, wherever it stands.
    '--',
    program,
    ...args,
  ];
  const child = spawn(command, rest, {
    // Nothing is sent along from here.
    cwd: env.PWD ?? '/',
    env: { PATH: process.env.PATH, ...env },
    stdio: [wrapped ? 'pipe' : 'ignore', 'pipe', 'pipe'],
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout?.on('data', (piece: Buffer) => out.push(piece));
  child.stderr?.on('data', (piece: Buffer) => err.push(piece));
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      forget();
      resolve({ code, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() });
    });
  });
  const forget = releaseLater(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    child,
    ended,
    stdout: () => Buffer.concat(out).toString(),
    hasSaid: () => out.length > 0,
  };
}

export const cli = (args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ended> =>
  startCli(args, env).ended;
