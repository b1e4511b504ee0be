import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

export const MAIN = resolve(__dirname, '../../../dist/apps/event-store/src/main.js');

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A server process of a test's own. */
export class Server {
  private constructor(
    private readonly child: ChildProcess,
    readonly exited: Promise<Exit>,
    readonly ready: {
      readonly pid: number;
      readonly port: number;
      readonly httpPort?: number;
      readonly caFile?: string;
      readonly passwordFile?: string;
    },
  ) {}

  /** Rejects with what the process said when it ends before it is ready. */
  static async start(directory: string, ...args: string[]): Promise<Server> {
    const { child, exited } = launch(['--data', directory, ...args]);
    const lines = createInterface({ input: child.stdout ?? process.stdin });
    const first = await Promise.race([once(lines, 'line'), exited]);
    if (!Array.isArray(first)) throw new Error(`the server ended: ${first.stderr}`);
    return new Server(child, exited, JSON.parse(String(first[0])));
  }

  get pid(): number {
    return this.ready.pid;
  }

  /** For a server started with --insecure. */
  get plainUrl(): string {
    return `esdb://127.0.0.1:${this.ready.port}?tls=false`;
  }

  get password(): string {
    return readFileSync(this.ready.passwordFile ?? '', 'utf8').trim();
  }

  url(password = this.password): string {
    const { port, caFile } = this.ready;
    return `esdb://admin:${password}@127.0.0.1:${port}?tls=true&tlsCAFile=${caFile}`;
  }

  async metric(name: string): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${this.ready.httpPort}/metrics`);
    const line = (await response.text()).split('\n').find((text) => text.startsWith(`${name} `));
    if (!line) throw new Error(`no metric ${name}`);
    return Number(line.slice(name.length));
  }

  /** What a parent that ends leaves behind. */
  closeOutputs(): void {
    this.child.stdout?.destroy();
    this.child.stderr?.destroy();
  }

  stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<Exit> {
    this.child.kill(signal);
    return this.exited;
  }
}

/** Runs the program to its end. */
export const run = (...args: string[]): Promise<Exit> => launch(args).exited;

function launch(args: string[]): { child: ChildProcess; exited: Promise<Exit> } {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  const exited = once(child, 'close').then(([code, signal]) => ({ code, signal, stdout, stderr }));
  return { child, exited };
}

/** Directories and servers of one test file, all gone after it. */
export class Bench {
  private readonly directories: string[] = [];
  private readonly servers: Server[] = [];

  directory(): string {
    const directory = mkdtempSync(join(tmpdir(), 'event-store-test-'));
    this.directories.push(directory);
    return directory;
  }

  async start(directory = this.directory(), ...args: string[]): Promise<Server> {
    const server = await Server.start(directory, ...args);
    this.servers.push(server);
    return server;
  }

  async clean(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop('SIGKILL')));
    for (const directory of this.directories) rmSync(directory, { recursive: true, force: true });
  }
}
