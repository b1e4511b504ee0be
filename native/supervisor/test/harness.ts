import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Body } from './bytes';
import { Connection, type Exec, execOf, type Output, outputOf, T } from './client';

const folder = resolve(__dirname, '..');
export const builds: [name: string, make: string, file: string][] = [
  ['static build', 'all', resolve(folder, '../../dist/native/vmux-supervisor')],
  ['sanitizer build', 'sanitize', resolve(folder, '../../dist/native/vmux-supervisor-sanitized')],
];

export function make(target: string): void {
  const made = spawnSync('make', ['-s', '-C', folder, target], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`make ${target}: ${made.stderr}`);
}

/** A supervisor with its own spool, and everything that was opened to it. */
export class Sandbox {
  readonly folder = mkdtempSync(join(tmpdir(), 'vmux-sup-'));
  readonly socket = join(this.folder, 's');
  readonly spool = join(this.folder, 'spool');
  readonly instance = randomUUID();
  readonly epoch = 7;
  process?: ChildProcess;
  stderr = '';
  private connections: Connection[] = [];

  constructor(readonly binary: string) {}

  launch(...args: string[]): ChildProcess {
    const named = [`--listen=${this.socket}`, `--spool=${this.spool}`];
    const all = ['run', ...named, `--epoch=${this.epoch}`, `--instance=${this.instance}`];
    rmSync(this.socket, { force: true });
    const child = spawn(
      this.binary,
      [...all, '--lease-seconds=0', '--stop-grace-ms=300', ...args],
      {
        stdio: ['ignore', 'inherit', 'pipe'],
      },
    );
    child.stderr?.on('data', (text) => {
      this.stderr += text;
    });
    this.process = child;
    return child;
  }

  async start(...args: string[]): Promise<Connection> {
    const child = this.launch(...args);
    while (!existsSync(this.socket)) {
      if (child.exitCode !== null) throw new Error(`supervisor ended: ${this.stderr}`);
      await sleep(5);
    }
    return this.connect();
  }

  async connect(): Promise<Connection> {
    for (let attempt = 0; ; attempt++) {
      try {
        const connection = await Connection.open(this.socket, this.epoch, this.instance);
        this.connections.push(connection);
        return connection;
      } catch (error) {
        // The path appears a moment before the socket listens.
        if (attempt > 50 || !/closed/.test(String(error))) throw error;
        await sleep(10);
      }
    }
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<number | null> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null)
      return child?.exitCode ?? null;
    const ended = new Promise<number | null>((done) => child.once('exit', (code) => done(code)));
    child.kill(signal);
    return ended;
  }

  /** Ends everything; a sanitizer's complaint fails the test here. */
  async end(): Promise<void> {
    await Promise.all(this.connections.map((connection) => connection.close()));
    await this.kill('SIGTERM');
    rmSync(this.folder, { recursive: true, force: true });
    if (/Sanitizer|runtime error/.test(this.stderr)) throw new Error(this.stderr);
  }
}

export type Start = {
  argv: string[];
  env?: string[];
  cwd?: string;
  user?: string;
  stdin?: boolean;
  pty?: [cols: number, rows: number];
};

export const path = `PATH=${process.env.PATH}`;
export const sh = (script: string, more: Partial<Start> = {}): Start => ({
  argv: ['/bin/sh', '-c', script],
  env: [path],
  ...more,
});

export function startBody(execId: string, start: Start): Body {
  const [cols, rows] = start.pty ?? [0, 0];
  const body = new Body().bytes(execId).u32((start.pty ? 1 : 0) | (start.stdin ? 2 : 0));
  body
    .u16(cols)
    .u16(rows)
    .bytes(start.user ?? '')
    .bytes(start.cwd ?? '');
  body.u16(start.argv.length);
  for (const arg of start.argv) body.bytes(arg);
  body.u16(start.env?.length ?? 0);
  for (const entry of start.env ?? []) body.bytes(entry);
  return body;
}

export async function startExec(c: Connection, execId: string, start: Start): Promise<Exec> {
  return execOf(await c.request(T.START, startBody(execId, start)).expect(T.EXEC));
}

export async function stateOf(c: Connection, execId: string): Promise<Exec> {
  return execOf(await c.request(T.STATE, new Body().bytes(execId)).expect(T.EXEC));
}

export type ReadOptions = { stream?: number; offset?: number; follow?: boolean; window?: number };
export type ReadResult = { output: Output[]; data: Buffer; exec: Exec };

export const readBody = (
  execId: string,
  { stream = 0, offset = 0, follow = true, window = 1 << 20 }: ReadOptions,
) =>
  new Body()
    .bytes(execId)
    .u8(stream)
    .u8(follow ? 1 : 0)
    .u64(offset)
    .u32(window);

/** Reads to the end, giving back credit as it goes. */
export async function readAll(
  c: Connection,
  execId: string,
  options: ReadOptions = {},
): Promise<ReadResult> {
  const exchange = c.request(T.READ, readBody(execId, options));
  const output: Output[] = [];
  for (;;) {
    const frame = await exchange.next();
    if (frame.type === T.EXEC) {
      const data = Buffer.concat(output.map((piece) => piece.data));
      return { output, data, exec: execOf(frame.body) };
    }
    const piece = outputOf(frame.body);
    output.push(piece);
    exchange.send(T.CREDIT, new Body().u32(piece.data.length));
  }
}

export async function run(c: Connection, execId: string, start: Start): Promise<ReadResult> {
  await startExec(c, execId, start);
  return readAll(c, execId);
}

export async function eventually<Value>(
  look: () => Promise<Value | undefined> | Value | undefined,
): Promise<Value> {
  for (let attempt = 0; attempt < 500; attempt++) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    await sleep(20);
  }
  throw new Error('what was waited for did not come');
}
