import { randomUUID } from 'node:crypto';
import {
  type Checkpoint,
  type ClearEnv,
  controlReportSubject,
  type ExecSpec,
  encodeOutput,
  heartbeatSubject,
  MAX_CHUNK_BYTES,
  NO_OUTPUT,
  type Order,
  type OrderNamed,
  type Outcome,
  type OutputItem,
  type OutputReply,
  orderSubject,
  outputReportSubject,
  parseOrder,
  type ReportMessage,
  type ReportReply,
  type Sizes,
  type Stream,
} from '@vmux/events';
import { type Bus, decodeJson, encodeJson, type Service } from '@vmux/messaging';

export interface Sandbox {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
}

/** What an exec does, told by the test. It ends with `exit`, or with 0 when the script returns. */
export type Script = (exec: FakeExec) => Promise<void> | void;

/** A runner without sandboxes: execs are scripts of the test, found by their command line. */
export class FakeRunner {
  readonly orders: Order[] = [];
  readonly sandboxes = new Map<string, Sandbox>();
  readonly execs = new Map<string, FakeExec>();
  readonly faults: unknown[] = [];
  readonly scripts = new Map<string, Script>();
  /** Whether its provider can be used now. */
  available = true;
  private readonly service: Service;
  private readonly timer: NodeJS.Timeout;
  private readonly incarnation = randomUUID();

  constructor(
    readonly bus: Bus,
    readonly runnerId = 'fake-1',
    readonly provider = 'ns',
    /** Runners with the same one can take over each other's sandboxes. */
    readonly pool?: string,
  ) {
    this.service = bus.serve(orderSubject(runnerId), { concurrency: 1024 }, async ({ data }) => {
      await this.obey(parseOrder(decodeJson(data))).catch((fault) => this.faults.push(fault));
      return undefined;
    });
    this.timer = setInterval(() => this.beat(), 300);
    this.beat();
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.service.stop();
  }

  /** Sent again until it is answered, as a runner does. */
  async report<T extends ReportMessage['type']>(
    sandbox: Sandbox,
    type: T,
    data: Extract<ReportMessage, { type: T }>['data'],
  ): Promise<ReportReply> {
    const frame = encodeJson({ ...sandbox, type, at: Date.now(), data });
    return (await this.insist(controlReportSubject(this.runnerId), frame)) as ReportReply;
  }

  async output(sandbox: Sandbox, items: readonly OutputItem[]): Promise<OutputReply> {
    const { sessionId, epoch, instance } = sandbox;
    const frame = encodeOutput({ sessionId, epoch, instance, items });
    return (await this.insist(outputReportSubject(this.runnerId), frame)) as OutputReply;
  }

  sandboxOf(sessionId: string): Sandbox {
    const sandbox = this.sandboxes.get(sessionId);
    if (!sandbox) throw new Error(`no sandbox of ${sessionId} yet`);
    return sandbox;
  }

  private async insist(subject: string, frame: Uint8Array): Promise<unknown> {
    for (let left = 60; ; left -= 1) {
      try {
        const reply = decodeJson(await this.bus.request(subject, frame, { timeoutMs: 2_000 }));
        if (!mayHelpToRepeat(reply) || left === 0) return reply;
      } catch (fault) {
        if (left === 0) throw fault;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  private async obey(order: Order): Promise<void> {
    this.orders.push(order);
    if (order.type === 'CreateSandbox') await this.create(order);
    if (order.type === 'AdoptSandbox' && order.instance !== null) {
      const { sessionId, epoch, instance } = order;
      this.sandboxes.set(sessionId, { sessionId, epoch, instance });
      const ready = { base: order.data.base, restoredDigest: null };
      await this.report(this.sandboxOf(sessionId), 'SandboxReady', ready);
    }
    if (order.type === 'StartExec') await this.start(order);
    if (order.type === 'CancelExec') await this.execs.get(order.data.execId)?.cancelled();
    if (order.type === 'SignalExec') {
      const { execId, signalId } = order.data;
      const sandbox = this.sandboxOf(order.sessionId);
      await this.report(sandbox, 'ExecSignalled', { execId, signalId, delivered: true });
    }
    if (order.type === 'SuspendSandbox' || order.type === 'ResumeSandbox') {
      const done = order.type === 'SuspendSandbox' ? 'SandboxSuspended' : 'SandboxResumed';
      const { request } = order.data;
      await this.report(this.sandboxOf(order.sessionId), done, { request });
    }
    if (order.type === 'TakeCheckpoint') {
      const sandbox = this.sandboxOf(order.sessionId);
      const checkpoint = checkpointOf(order.data.checkpointId, sandbox);
      await this.report(sandbox, 'CheckpointTaken', { checkpoint });
    }
    if (order.type === 'DestroySandbox') {
      const { sessionId, epoch, instance } = order;
      const gone = { sessionId, epoch, instance: instance ?? 'none' };
      for (const exec of this.execs.values())
        if (exec.sandbox.sessionId === sessionId) await exec.cancelled();
      await this.report(gone, 'SandboxReleased', {});
      this.sandboxes.delete(sessionId);
    }
  }

  private async create(order: OrderNamed<'CreateSandbox'>): Promise<void> {
    const { sessionId, epoch } = order;
    const known = this.sandboxes.get(sessionId);
    const fresh = { sessionId, epoch, instance: `i-${randomUUID()}` };
    const sandbox = known?.epoch === epoch ? known : fresh;
    this.sandboxes.set(sessionId, sandbox);
    const restoredDigest = order.data.restore?.manifestDigest ?? null;
    await this.report(sandbox, 'SandboxReady', { base: null, restoredDigest });
  }

  private async start({ sessionId, data }: OrderNamed<'StartExec'>): Promise<void> {
    const { execId, spec, env } = data;
    if (this.execs.has(execId)) return;
    const exec = new FakeExec(this, this.sandboxOf(sessionId), execId, spec, env);
    this.execs.set(execId, exec);
    const line = spec.command.kind === 'shell' ? spec.command.line : spec.command.argv.join(' ');
    await exec.run(this.scripts.get(line) ?? ((each) => each.write('stdout', line)));
  }

  private beat(): void {
    const capabilities = ['pty', 'suspend', 'checkpoint', 'fork'];
    const { runnerId, incarnation, provider, available, pool } = this;
    const heartbeat = {
      ...{ runnerId, incarnation, at: Date.now(), draining: false },
      providers: [{ provider, available, reason: null, capabilities, emulated: true, pool }],
      capacity: {
        ...{ sandboxes: this.sandboxes.size, maxSandboxes: 10_000, freeMemoryMiB: 4096 },
        ...{ freeDiskMiB: 4096, cpus: 2, load: 0 },
      },
      tunnel: { url: 'tcp://127.0.0.1:1', token: 'tunnel-token-is-secret' },
    };
    this.bus.publish(heartbeatSubject(runnerId), encodeJson(heartbeat));
  }
}

export class FakeExec {
  readonly written: Record<Stream, number> = { ...NO_OUTPUT };
  private ended = false;

  constructor(
    readonly runner: FakeRunner,
    readonly sandbox: Sandbox,
    readonly id: string,
    readonly spec: ExecSpec,
    readonly env: ClearEnv,
  ) {}

  async run(script: Script): Promise<void> {
    await this.runner.report(this.sandbox, 'ExecStarted', { execId: this.id, pid: 7 });
    await script(this);
    await this.exit();
  }

  async write(stream: Stream, data: string | Uint8Array): Promise<void> {
    const bytes = Buffer.from(data);
    const offset = this.written[stream];
    this.written[stream] += bytes.length;
    for (let from = 0; from < bytes.length; from += MAX_CHUNK_BYTES)
      await this.send([
        this.chunk(stream, offset + from, bytes.subarray(from, from + MAX_CHUNK_BYTES)),
      ]);
  }

  /** Bytes that were written and no longer exist. */
  async lose(stream: Stream, length: number, reason = 'disk full'): Promise<void> {
    const from = this.written[stream];
    const to = from + length;
    this.written[stream] = to;
    await this.send([{ kind: 'gap', execId: this.id, stream, from, to, reason, at: Date.now() }]);
  }

  chunk(stream: Stream, offset: number, bytes: Uint8Array): OutputItem {
    return { kind: 'chunk', execId: this.id, stream, offset, bytes, at: Date.now() };
  }

  send(items: readonly OutputItem[]): Promise<OutputReply> {
    return this.runner.output(this.sandbox, items);
  }

  exit(code = 0): Promise<void> {
    return this.end({ kind: 'exited', code });
  }

  cancelled(): Promise<void> {
    return this.end({ kind: 'signalled', signal: 'SIGTERM' });
  }

  get hasEnded(): boolean {
    return this.ended;
  }

  private async end(outcome: Outcome): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    const sizes: Sizes = { ...this.written };
    const data = { execId: this.id, outcome, sizes, usage: null };
    await this.runner.report(this.sandbox, 'ExecExited', data);
  }
}

const checkpointOf = (checkpointId: string, { epoch }: Sandbox): Checkpoint => ({
  ...{ checkpointId, name: null, epoch, artifact: 'a'.repeat(64), manifestDigest: 'b'.repeat(64) },
  ...{ bytes: 1000, newBytes: 10, native: null },
  base: { image: null, digest: null, distribution: null, architecture: 'x64' },
});

function mayHelpToRepeat(reply: unknown): boolean {
  return (
    typeof reply === 'object' &&
    reply !== null &&
    'failed' in reply &&
    (reply as { failed: { retry: boolean } }).failed.retry
  );
}
