import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot, releaseLater, temporaryDirectory } from '@vmux/testing';

export interface Said {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Invocation {
  readonly stdin?: string | Uint8Array;
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
}

export interface OtherUser {
  readonly uid: number;
  /** A command that runs the command behind it as this user. */
  readonly prefix: readonly string[];
}

/** Without any right, group or name. */
export const nobodySpecial: OtherUser = {
  uid: 61_234,
  prefix: ['setpriv', '--reuid=61234', '--regid=61234', '--clear-groups', '--'],
};

/** A user with an empty home, at the front door. What they started is ended with the test file. */
export class Newcomer {
  readonly home = temporaryDirectory('home');
  readonly data = join(this.home, '.local/share/vmux');
  readonly project = join(this.home, 'project');

  constructor(
    readonly vmuxFile = join(projectRoot(), 'vmux'),
    /** Set up by whoever runs the tests: packages are not replaced under other tests. */
    private readonly more: NodeJS.ProcessEnv = { VMUX_NO_SETUP: '1' },
    /** Who is not the user of the tests, and what makes a process theirs. */
    private readonly other: OtherUser | null = null,
  ) {
    mkdirSync(this.project);
    if (other) for (const path of [this.home, this.project]) chownSync(path, other.uid, other.uid);
    // Also when a test fails: nothing that was started here stays.
    releaseLater(async () => {
      const { stdout } = await this.vmux('ps', '--json');
      const live = stdout ? (JSON.parse(stdout) as { id: string }[]) : [];
      if (live.length > 0) await this.vmux('stop', '--grace', '0ms', ...live.map(({ id }) => id));
      await this.vmux('down');
    });
  }

  get env(): NodeJS.ProcessEnv {
    return {
      PATH: process.env.PATH,
      HOME: this.home,
      VMUX_PORT: '0',
      ...this.more,
    };
  }

  vmux(...args: readonly string[]): Promise<Said> {
    return this.with({}, ...args);
  }

  with(invocation: Invocation, ...args: readonly string[]): Promise<Said> {
    return this.start(invocation, ...args).ended;
  }

  start(
    { stdin, cwd = this.project, env = {} }: Invocation,
    ...args: readonly string[]
  ): {
    readonly child: ChildProcess;
    readonly said: { stdout: string; stderr: string };
    readonly ended: Promise<Said>;
  } {
    const [program = '', ...before] = [...(this.other?.prefix ?? []), this.vmuxFile];
    const child = spawn(program, [...before, ...args], {
      cwd,
      env: { ...this.env, ...env },
      stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    const said = { stdout: '', stderr: '' };
    child.stdout?.setEncoding('utf8').on('data', (piece) => {
      said.stdout += piece;
    });
    child.stderr?.setEncoding('utf8').on('data', (piece) => {
      said.stderr += piece;
    });
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(stdin);
    const ended = new Promise<Said>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve({ code, ...said }));
    });
    return { child, said, ended };
  }

  /** Who runs this user's stack. */
  record(): { pid: number; url: string; parts: { name: string; pid: number }[] } {
    return JSON.parse(readFileSync(join(this.data, 'stack.json'), 'utf8'));
  }
}

export const statusOf = (pid: number): string =>
  existsSync(`/proc/${pid}`) ? readFileSync(`/proc/${pid}/status`, 'utf8').slice(0, 200) : 'gone';

/** One that has ended does not live, whether somebody has waited for it or not. */
export const livesOn = (pid: number): boolean =>
  existsSync(`/proc/${pid}`) && !/^State:\s+[ZX]/m.test(statusOf(pid));
