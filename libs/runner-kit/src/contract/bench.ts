import { randomBytes } from 'node:crypto';
import type { SandboxDriver, SandboxId, SandboxLimits, SandboxSpec } from '../driver';
import { openInput } from '../exec-input';
import type { ExecState, Figures } from '../supervisor-answers';
import { type ReadOptions, type StartExec, SupervisorClient } from '../supervisor-client';

/** What a driver's own test file provides. */
export interface ContractTarget {
  /** A new driver over the same sandboxes, as a restarted runner would make it. */
  openDriver(): SandboxDriver;
  /** Ends a sandbox's processes behind the driver's back. */
  killFromOutside(id: SandboxId): Promise<void>;
  /** How to run `contractRunner` with such a driver in a process of its own. */
  readonly runner: { readonly command: string; readonly args: readonly string[] };
  /** Lets the runner use that directory, where it is another user. */
  handOver?(directory: string): void;
  /** What is used as a sandbox's image; null for the driver's default. */
  readonly image: string | null;
  close(): Promise<void>;
}

export const DEFAULT_LIMITS: SandboxLimits = { cpus: 2, memoryMiB: 512, diskMiB: 1024, pids: 1024 };

export interface Opened {
  readonly id: SandboxId;
  readonly client: SupervisorClient;
}

export const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Keeps track of what the tests make, so that nothing is left, whatever failed. */
export class Bench {
  #target: ContractTarget | undefined;
  #driver: SandboxDriver | undefined;
  readonly #made = new Map<string, SandboxId>();
  readonly #clients = new Set<SupervisorClient>();

  constructor(private readonly openTarget: () => Promise<ContractTarget>) {}

  async open(): Promise<void> {
    this.#target = await this.openTarget();
    this.#driver = this.#target.openDriver();
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.close();
    const driver = this.#driver;
    if (driver) {
      await Promise.all([...this.#made.values()].map((id) => driver.destroy(id)));
      await driver.close();
    }
    await this.#target?.close();
  }

  get target(): ContractTarget {
    if (!this.#target) throw new Error('the bench is not open');
    return this.#target;
  }

  get driver(): SandboxDriver {
    if (!this.#driver) throw new Error('the bench is not open');
    return this.#driver;
  }

  newId(): SandboxId {
    const suffix = randomBytes(2).toString('hex');
    const instance = randomBytes(8).toString('hex');
    const id = { sessionId: `contract-${suffix}`, epoch: 1, instance };
    this.#made.set(instance, id);
    return id;
  }

  specOf(id: SandboxId, limits: Partial<SandboxLimits> = {}): SandboxSpec {
    const all = { ...DEFAULT_LIMITS, ...limits };
    return { id, limits: all, image: this.target.image, egress: false, gpu: null };
  }

  async sandbox(limits: Partial<SandboxLimits> = {}): Promise<Opened> {
    const id = this.newId();
    await this.driver.create(this.specOf(id, limits));
    return { id, client: await this.connect(id) };
  }

  async connect(id: SandboxId, driver = this.driver): Promise<SupervisorClient> {
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    this.#clients.add(client);
    return client;
  }
}

export const newExecId = (): string => `e${randomBytes(6).toString('hex')}`;

export const shell = (script: string, more: Partial<StartExec> = {}): StartExec => ({
  execId: newExecId(),
  argv: ['sh', '-c', script],
  env: { PATH, LANG: 'C' },
  ...more,
});

export interface Finished {
  readonly exec: ExecState;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly usage: Figures | undefined;
}

/** Reads an exec's output to its end. */
export async function finish(
  client: SupervisorClient,
  execId: string,
  options: ReadOptions = {},
): Promise<Finished> {
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  for await (const item of client.read(execId, options)) {
    if (item.kind === 'stdout') stdout.push(item.data);
    if (item.kind === 'stderr') stderr.push(item.data);
    if (item.kind !== 'end') continue;
    const { exec, usage } = item;
    return { exec, usage, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr) };
  }
  throw new Error(`the output of ${execId} has no end`);
}

export async function run(
  client: SupervisorClient,
  exec: StartExec,
  input?: Uint8Array,
): Promise<Finished> {
  await client.start(input ? { ...exec, stdin: true } : exec);
  const finished = finish(client, exec.execId);
  if (input) {
    const stdin = openInput(client, exec.execId);
    await stdin.write(input);
    await stdin.end();
  }
  return finished;
}

/** Waits for a condition that something outside brings about. */
export async function until<T>(
  condition: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 20_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > deadline) throw new Error(`not so after ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
