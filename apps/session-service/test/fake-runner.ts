import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Capability,
  controlReportSubject,
  encodeOutput,
  type Heartbeat,
  heartbeatSubject,
  NO_OUTPUT,
  type Order,
  type OrderType,
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

type Act = (order: Order, runner: FakeRunner) => Promise<void> | void;

/** A runner that does what the test tells it: by default sandboxes start and execs exit with 0. */
export class FakeRunner {
  readonly orders: Order[] = [];
  readonly sandboxes = new Map<string, Sandbox>();
  readonly faults: unknown[] = [];
  acts: Partial<Record<OrderType, Act>> = {};
  private readonly service: Service;
  private readonly timer: NodeJS.Timeout;
  private readonly incarnation = randomUUID();

  constructor(
    private readonly bus: Bus,
    readonly runnerId = 'fake-1',
    private readonly capabilities: readonly Capability[] = ['pty', 'suspend', 'checkpoint', 'fork'],
    private readonly maxSandboxes = 1000,
  ) {
    this.service = bus.serve(orderSubject(runnerId), { concurrency: 256 }, async ({ data }) => {
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

  ordersOf(type: OrderType, sessionId?: string): Order[] {
    return this.orders.filter(
      (order) => order.type === type && (sessionId === undefined || order.sessionId === sessionId),
    );
  }

  async report<T extends ReportMessage['type']>(
    sandbox: Sandbox,
    type: T,
    data: Extract<ReportMessage, { type: T }>['data'],
  ): Promise<ReportReply> {
    const message = { ...sandbox, type, at: Date.now(), data };
    const reply = await this.insist(controlReportSubject(this.runnerId), encodeJson(message));
    return decodeJson(reply) as ReportReply;
  }

  async output(sandbox: Sandbox, items: readonly OutputItem[]): Promise<OutputReply> {
    const { sessionId, epoch, instance } = sandbox;
    const frame = encodeOutput({ sessionId, epoch, instance, items });
    const reply = await this.insist(outputReportSubject(this.runnerId), frame);
    return decodeJson(reply) as OutputReply;
  }

  write(
    sandbox: Sandbox,
    execId: string,
    offset: number,
    bytes: Uint8Array,
    stream: Stream = 'stdout',
  ) {
    return this.output(sandbox, chunksOf(execId, offset, bytes, stream));
  }

  exit(sandbox: Sandbox, execId: string, sizes: Partial<Sizes> = {}, code = 0) {
    return this.report(sandbox, 'ExecExited', {
      execId,
      outcome: { kind: 'exited', code },
      sizes: { ...NO_OUTPUT, ...sizes },
      usage: null,
    });
  }

  sandboxOf(sessionId: string): Sandbox {
    const sandbox = this.sandboxes.get(sessionId);
    if (!sandbox) throw new Error(`no sandbox of ${sessionId} yet`);
    return sandbox;
  }

  /** What nobody answered is said again, as runners do. */
  private async insist(subject: string, data: Uint8Array): Promise<Uint8Array> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.bus.request(subject, data, { timeoutMs: 4000 });
      } catch (fault) {
        if (attempt === 8) throw fault;
        await sleep(200);
      }
    }
  }

  private async obey(order: Order): Promise<void> {
    this.orders.push(order);
    const act = this.acts[order.type] ?? DEFAULTS[order.type];
    await act?.(order, this);
  }

  /** No more heartbeats: nothing is placed here. */
  fallSilent(): void {
    clearInterval(this.timer);
  }

  private beat(): void {
    const { runnerId, capabilities, incarnation, maxSandboxes } = this;
    const heartbeat = {
      ...heartbeatOf(runnerId, capabilities, maxSandboxes),
      ...{ incarnation, at: Date.now() },
    };
    this.bus.publish(heartbeatSubject(this.runnerId), encodeJson(heartbeat));
  }
}

export const heartbeatOf = (
  runnerId: string,
  capabilities: readonly Capability[],
  maxSandboxes = 1000,
): Heartbeat => ({
  runnerId,
  incarnation: 'first',
  at: 0,
  draining: false,
  providers: [{ provider: 'fake', available: true, reason: null, capabilities, emulated: true }],
  capacity: {
    ...{ sandboxes: 0, maxSandboxes, freeMemoryMiB: 1000, freeDiskMiB: 1000 },
    ...{ cpus: 2, load: 0 },
  },
  tunnel: null,
});

export const chunksOf = (
  execId: string,
  offset: number,
  bytes: Uint8Array,
  stream: Stream = 'stdout',
  size = 64 * 1024,
): OutputItem[] => {
  const items: OutputItem[] = [];
  for (let from = 0; from < bytes.length; from += size)
    items.push({
      kind: 'chunk',
      execId,
      stream,
      offset: offset + from,
      bytes: bytes.subarray(from, from + size),
      at: Date.now(),
    });
  return items;
};

const DEFAULTS: Partial<Record<OrderType, Act>> = {
  CreateSandbox: async (order, runner) => {
    const { sessionId, epoch } = order;
    const known = runner.sandboxes.get(sessionId);
    const sandbox =
      known?.epoch === epoch ? known : { sessionId, epoch, instance: `i-${randomUUID()}` };
    runner.sandboxes.set(sessionId, sandbox);
    await runner.report(sandbox, 'SandboxReady', {
      base: null,
      restoredDigest:
        order.type === 'CreateSandbox' ? (order.data.restore?.manifestDigest ?? null) : null,
    });
  },
  StartExec: async (order, runner) => {
    if (order.type !== 'StartExec') return;
    const sandbox = runner.sandboxOf(order.sessionId);
    const { execId, spec } = order.data;
    const text = Buffer.from(spec.command.kind === 'shell' ? spec.command.line : '');
    await runner.report(sandbox, 'ExecStarted', { execId, pid: 7 });
    await runner.write(sandbox, execId, 0, text);
    await runner.exit(sandbox, execId, { stdout: text.length });
  },
  DestroySandbox: async ({ sessionId, epoch, instance }, runner) => {
    const sandbox = { sessionId, epoch, instance: instance ?? 'none' };
    await runner.report(sandbox, 'SandboxReleased', {});
    runner.sandboxes.delete(sessionId);
  },
};
