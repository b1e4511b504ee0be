import type { Duplex } from 'node:stream';
import {
  type ExecState,
  hasEnded,
  type NativeCheckpoint,
  openInput,
  type SandboxDriver,
  SandboxError,
  type SandboxId,
  type SandboxSpec,
  SupervisorClient,
} from '@vmux/runner-kit';

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const MAIN = 'main';
/** One number for every writer: the SDK has one, and repeats what it is not sure of at the same offset. */
const WRITER = 1;
/** What a reader may come back for. Beyond it the room is used again. */
const KEPT_BYTES = 32 * 1024 * 1024;

export interface BoxCommand {
  readonly argv: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Modal's worker, played by a sandbox of this machine: a supervisor of our own stands in for the provider's
 * container runtime. It runs the entry point and every exec, and keeps their output by offset.
 */
export class Box {
  private connection: Promise<SupervisorClient> | undefined;

  constructor(
    private readonly driver: SandboxDriver,
    readonly id: SandboxId,
  ) {}

  /** From a snapshot of another one, when it is given. */
  create(spec: Omit<SandboxSpec, 'id'>, snapshot: NativeCheckpoint | undefined): Promise<void> {
    const whole = { ...spec, id: this.id };
    return snapshot ? this.driver.restore(whole, snapshot) : this.driver.create(whole);
  }

  snapshot(): Promise<NativeCheckpoint> {
    return this.driver.checkpoint(this.id);
  }

  async touch(path: string): Promise<void> {
    await (await this.client()).files.write(path, [Buffer.from('strange')]);
  }

  async destroy(): Promise<void> {
    const client = await this.connection?.catch(() => undefined);
    client?.close();
    await this.driver.destroy(this.id);
  }

  start(command: BoxCommand): Promise<ExecState> {
    return this.exec(MAIN, command);
  }

  async exec(execId: string, { argv, cwd, env }: BoxCommand): Promise<ExecState> {
    const client = await this.client();
    return client.start({
      execId,
      argv,
      env: { PATH, HOME: '/root', LANG: 'C.UTF-8', ...env },
      ...(cwd ? { cwd } : {}),
      stdin: execId !== MAIN,
    });
  }

  /** How the entry point ended; undefined when the box is gone and nobody knows. */
  async mainEnded(signal: AbortSignal): Promise<ExecState | undefined> {
    return this.ended(MAIN, signal).catch((fault) => {
      if (fault instanceof SandboxError && fault.next === 'lost') return undefined;
      throw fault;
    });
  }

  async ended(execId: string, signal: AbortSignal): Promise<ExecState> {
    for (;;) {
      const client = await this.client();
      try {
        for await (const item of client.watch({ signal }))
          if (item.kind === 'exec' && item.exec.execId === execId && hasEnded(item.exec))
            return item.exec;
      } catch (fault) {
        signal.throwIfAborted();
        if (!(fault instanceof SandboxError) || fault.next !== 'retry') throw fault;
      }
    }
  }

  async state(execId: string): Promise<ExecState> {
    return (await this.client()).state(execId);
  }

  async *output(
    execId: string,
    stream: 'stdout' | 'stderr',
    offset: number,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer> {
    const client = await this.client();
    let acknowledged = offset;
    for await (const item of client.read(execId, { stream, offset, signal })) {
      if (!('data' in item)) continue;
      yield item.data;
      const end = item.streamOffset + item.data.length;
      // The merged offset is at least the stream's own: nothing that is kept is freed.
      if (stream === 'stdout' && end - acknowledged > 2 * KEPT_BYTES) {
        acknowledged = end - KEPT_BYTES;
        await client.acknowledge(execId, acknowledged, { signal });
      }
    }
  }

  async input(execId: string, offset: number, data: Uint8Array, end: boolean): Promise<void> {
    const input = openInput(await this.client(), execId, { writer: WRITER, offset });
    if (data.length > 0) await input.write(data);
    if (end) await input.end();
  }

  /** A connection to a port inside. */
  async dial(port: number): Promise<Duplex> {
    return (await this.client()).dial(port);
  }

  private client(): Promise<SupervisorClient> {
    this.connection ??= this.open().catch((fault) => {
      this.connection = undefined;
      throw fault;
    });
    return this.connection;
  }

  private async open(): Promise<SupervisorClient> {
    const client = await SupervisorClient.connect(await this.driver.openPipe(this.id), this.id);
    client.ended.then(() => {
      this.connection = undefined;
    });
    return client;
  }
}
