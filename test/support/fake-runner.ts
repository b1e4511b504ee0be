import { randomUUID } from 'node:crypto';
import {
  type Capability,
  type Checkpoint,
  type Heartbeat,
  heartbeatSubject,
  type Making,
  type Order,
  type OrderNamed,
  type OrderType,
  orderSubject,
  parseOrder,
} from '@vmux/events';
import { type Bus, decodeJson, encodeJson, type Service } from '@vmux/messaging';
import { FakeExec, type Script } from './fake-exec';
import { Reporter, type Sandbox } from './reporter';

/** What a runner says of itself. */
export interface Offer {
  readonly runnerId?: string;
  readonly provider?: string;
  readonly capabilities?: readonly Capability[];
  readonly maxSandboxes?: number;
  /** Runners with the same one can take over each other's sandboxes. */
  readonly pool?: string;
}

type Act<T extends OrderType> = (order: OrderNamed<T>) => Promise<void> | void;
type Acts = { [T in OrderType]?: Act<T> };

/** A runner without sandboxes: it does what it is told to, and execs are scripts of the test. */
export class FakeRunner extends Reporter {
  readonly orders: Order[] = [];
  readonly sandboxes = new Map<string, Sandbox>();
  readonly execs = new Map<string, FakeExec>();
  readonly faults: unknown[] = [];
  /** What execs do, by their command line; the others print that line. */
  readonly scripts = new Map<string, Script>();
  /** What the test does at an order, instead of what the runner does by itself. */
  acts: Acts = {};
  /** Whether its provider can be used now. */
  available = true;
  /** What it says of sandboxes that are not there yet. */
  making: readonly Making[] = [];
  private readonly service: Service;
  private readonly timer: NodeJS.Timeout;
  private readonly incarnation = randomUUID();

  constructor(
    bus: Bus,
    private readonly offer: Offer = {},
  ) {
    super(bus, offer.runnerId ?? 'fake-1');
    const subject = orderSubject(this.runnerId);
    this.service = bus.serve(subject, { concurrency: 1024 }, async ({ data }) => {
      await this.obey(parseOrder(decodeJson(data))).catch((fault) => this.faults.push(fault));
      return undefined;
    });
    this.timer = setInterval(() => this.beat(), 300);
    this.beat();
  }

  async stop(): Promise<void> {
    this.giveUp();
    this.fallSilent();
    await this.service.stop();
  }

  /** No more heartbeats: nothing is placed here. */
  fallSilent(): void {
    clearInterval(this.timer);
  }

  ordersOf(type: OrderType, sessionId?: string): Order[] {
    return this.orders.filter(
      (order) => order.type === type && (sessionId === undefined || order.sessionId === sessionId),
    );
  }

  sandboxOf(sessionId: string): Sandbox {
    const sandbox = this.sandboxes.get(sessionId);
    if (!sandbox) throw new Error(`no sandbox of ${sessionId} yet`);
    return sandbox;
  }

  private async obey(order: Order): Promise<void> {
    this.orders.push(order);
    // Of one type by its key, which the compiler does not follow through a union.
    const act = (this.acts[order.type] ?? this.own[order.type]) as
      | Act<typeof order.type>
      | undefined;
    await act?.(order);
  }

  private readonly own: Acts = {
    CreateSandbox: async ({ sessionId, epoch, data }) => {
      const known = this.sandboxes.get(sessionId);
      const fresh = { sessionId, epoch, instance: `i-${randomUUID()}` };
      const sandbox = known?.epoch === epoch ? known : fresh;
      this.sandboxes.set(sessionId, sandbox);
      const restoredDigest = data.restore?.manifestDigest ?? null;
      await this.report(sandbox, 'SandboxReady', { base: null, restoredDigest });
    },
    AdoptSandbox: async ({ sessionId, epoch, instance, data }) => {
      if (instance === null) return;
      const sandbox = { sessionId, epoch, instance };
      this.sandboxes.set(sessionId, sandbox);
      await this.report(sandbox, 'SandboxReady', { base: data.base, restoredDigest: null });
    },
    StartExec: async ({ sessionId, data: { execId, spec, env } }) => {
      if (this.execs.has(execId)) return;
      const exec = new FakeExec(this, this.sandboxOf(sessionId), execId, spec, env);
      this.execs.set(execId, exec);
      const { command } = spec;
      const line = command.kind === 'shell' ? command.line : command.argv.join(' ');
      await exec.run(this.scripts.get(line) ?? ((each) => each.write('stdout', line)));
    },
    CancelExec: async ({ data }) => this.execs.get(data.execId)?.cancelled(),
    SignalExec: async ({ sessionId, data: { execId, signalId } }) => {
      const done = { execId, signalId, delivered: true };
      await this.report(this.sandboxOf(sessionId), 'ExecSignalled', done);
    },
    SuspendSandbox: async ({ sessionId, data: { request } }) => {
      await this.report(this.sandboxOf(sessionId), 'SandboxSuspended', { request });
    },
    ResumeSandbox: async ({ sessionId, data: { request } }) => {
      await this.report(this.sandboxOf(sessionId), 'SandboxResumed', { request });
    },
    TakeCheckpoint: async ({ sessionId, data: { checkpointId } }) => {
      const sandbox = this.sandboxOf(sessionId);
      const checkpoint = checkpointOf(checkpointId, sandbox);
      await this.report(sandbox, 'CheckpointTaken', { checkpoint });
    },
    DestroySandbox: async ({ sessionId, epoch, instance }) => {
      for (const exec of this.execs.values())
        if (exec.sandbox.sessionId === sessionId && exec.sandbox.epoch === epoch)
          await exec.cancelled();
      const gone = { sessionId, epoch, instance: instance ?? 'none' };
      await this.report(gone, 'SandboxReleased', {});
      if (this.sandboxes.get(sessionId)?.epoch === epoch) this.sandboxes.delete(sessionId);
    },
  };

  private beat(): void {
    const { runnerId, incarnation, available, sandboxes, making } = this;
    const said = heartbeatOf({ ...this.offer, runnerId });
    const heartbeat = {
      ...{ ...said, incarnation, making, at: Date.now() },
      providers: said.providers.map((each) => ({ ...each, available })),
      capacity: { ...said.capacity, sandboxes: sandboxes.size },
    };
    this.bus.publish(heartbeatSubject(runnerId), encodeJson(heartbeat));
  }
}

/** What a runner with nothing to do says at time 0. */
export const heartbeatOf = ({
  runnerId = 'fake-1',
  provider = 'ns',
  capabilities = ['pty', 'suspend', 'checkpoint', 'fork'],
  maxSandboxes = 10_000,
  pool,
}: Offer): Heartbeat => ({
  ...{ runnerId, incarnation: 'first', at: 0, draining: false },
  providers: [{ provider, available: true, reason: null, capabilities, emulated: true, pool }],
  capacity: {
    ...{ sandboxes: 0, maxSandboxes, freeMemoryMiB: 4096, freeDiskMiB: 4096, cpus: 2, load: 0 },
  },
  tunnel: { url: 'tcp://127.0.0.1:1', token: 'tunnel-token-is-secret' },
});

const checkpointOf = (checkpointId: string, { epoch }: Sandbox): Checkpoint => ({
  ...{ checkpointId, name: null, epoch, artifact: 'a'.repeat(64), manifestDigest: 'b'.repeat(64) },
  ...{ bytes: 1000, newBytes: 10, native: null },
  base: { image: null, digest: null, distribution: null, architecture: 'x64' },
});
