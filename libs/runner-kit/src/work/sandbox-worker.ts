import { setMaxListeners } from 'node:events';
import type { Duplex } from 'node:stream';
import {
  type Outcome,
  type OutputAccepted,
  Refusal,
  type ReportMessage,
  type Stage,
} from '@vmux/events';
import type { SandboxDriver, SandboxId } from '../driver';
import { SandboxError } from '../errors';
import type { ExecState } from '../supervisor-answers';
import { SupervisorClient } from '../supervisor-client';
import { followCpu } from './cpu-follower';
import { DirectDials } from './direct-dials';
import { type FollowPort, followExec, OutcomeLost, salvageExecs } from './exec-follower';
import { followMemory } from './memory-follower';
import { MemoryKills } from './memory-kills';
import { OutputPump } from './output-pump';
import { pause } from './pause';
import { followPorts, type PortReport } from './port-follower';
import type { Reporter } from './reporter';
import type { Setup } from './setup';

/** Why a worker is done with its sandbox. */
export type Ended =
  | { readonly how: 'lost'; readonly evidence: string }
  /** Another sandbox has taken its place: nobody wants to hear of this one. */
  | { readonly how: 'fenced' }
  /** It goes on without this runner, which stops or has been relieved of it. */
  | { readonly how: 'stopped' };

export interface WorkerSettings {
  readonly id: SandboxId;
  readonly driver: SandboxDriver;
  readonly reporter: Reporter;
  readonly setup?: Setup;
  readonly log: (message: string, facts?: Readonly<Record<string, unknown>>) => void;
}

type Body = ReportMessage extends infer R
  ? R extends ReportMessage
    ? Pick<R, 'type' | 'data' | 'at'>
    : never
  : never;

/** Whoever is refused so destroys its sandbox. */
export const fencing: ReadonlySet<string> = new Set([
  'stale_epoch',
  'session_not_found',
  'session_deleted',
  'session_ended',
  'log_closed',
]);
const firstPauseMs = 50;
const longestPauseMs = 2_000;

/**
 * Follows one sandbox for as long as it is this runner's: keeps a pipe to its supervisor, carries output
 * and exits to the history, and finds out when it is gone. Everything it does is safe to do again.
 */
export class SandboxWorker {
  readonly id: SandboxId;
  readonly ended: Promise<Ended>;
  private readonly stopping = new AbortController();
  private readonly stopped: Promise<never>;
  private current: Promise<SupervisorClient>;
  private connected: (client: SupervisorClient) => void = () => undefined;
  private readonly following = new Map<string, Promise<void>>();
  /** By exec that is followed: how much of its merged output is in the log. */
  private readonly carried = new Map<string, number>();
  private readonly reached = new Set<Stage>();
  private readonly memoryKills = new MemoryKills();
  private readonly dials: DirectDials;

  constructor(private readonly settings: WorkerSettings) {
    this.id = settings.id;
    const { signal } = this.stopping;
    // Every exec under way listens for the stop.
    setMaxListeners(0, signal);
    this.stopped = new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
    this.stopped.catch(() => undefined);
    this.dials = new DirectDials(settings);
    signal.addEventListener('abort', () => this.dials.stop(), { once: true });
    this.current = this.nextConnection();
    this.ended = this.run();
  }

  /** The supervisor, once there is a pipe to it. Rejects when the worker stops first. */
  client(): Promise<SupervisorClient> {
    return Promise.race([this.current, this.stopped]);
  }

  /** A connection to a port inside, the shortest way there is; `client` is the other. */
  dial(port: number, client: SupervisorClient, signal: AbortSignal): Promise<Duplex> {
    return this.dials.dial(port, client, signal);
  }

  /** Resolves when everything that has ended in the sandbox is in the history. */
  async drained(): Promise<void> {
    const client = await this.client();
    for (const exec of await client.states({ signal: this.stopping.signal }))
      this.follow(exec, client);
    await Promise.all(this.following.values());
  }

  /** How much of an exec's merged output this worker has seen into the log; its supervisor frees less. */
  carriedTo(execId: string): number {
    return this.carried.get(execId) ?? 0;
  }

  async report(body: Body): Promise<void> {
    const { sessionId, epoch, instance } = this.id;
    const message = { ...body, sessionId, epoch, instance } as ReportMessage;
    await this.settings.reporter.report(message, this.stopping.signal);
  }

  /** Told once: a repeat after a restart is no news to the history. */
  private reach(stage: Stage, at: number): void {
    if (this.reached.has(stage)) return;
    this.reached.add(stage);
    this.report({ type: 'StageReached', at, data: { stage, execId: null } }).catch((error) => {
      if (!this.stopping.signal.aborted) this.fail(error);
    });
  }

  private async reportPort(body: PortReport): Promise<void> {
    await this.report(body);
    if (body.type === 'PortOpened') this.reach('port_ready', body.at);
  }

  /** Lets go of the sandbox, which goes on. */
  async stop(): Promise<void> {
    this.stopping.abort(new WorkerStopped());
    await this.ended;
  }

  private nextConnection(): Promise<SupervisorClient> {
    return new Promise((resolve) => {
      this.connected = resolve;
    });
  }

  private async run(): Promise<Ended> {
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
      try {
        const client = await this.connect();
        pauseMs = firstPauseMs;
        await this.followAll(client);
      } catch (error) {
        const ended = await this.verdict(error);
        if (ended?.how === 'lost') await this.salvage();
        if (ended) {
          this.stopping.abort(new WorkerStopped());
          return ended;
        }
        this.settings.log('following a sandbox again', { ...this.id, reason: messageOf(error) });
        await pause(pauseMs, this.stopping.signal).catch(() => undefined);
      }
    }
  }

  /** What the sandbox wrote and nobody had read goes to the log before that is closed, if it is still there. */
  private async salvage(): Promise<void> {
    const { driver, log } = this.settings;
    const { signal } = this.stopping;
    if (!driver.openRemains) return;
    try {
      const pipe = await driver.openRemains(this.id, { signal });
      const { epoch, instance } = this.id;
      const client = await SupervisorClient.connect(pipe, { epoch, instance, signal });
      try {
        await salvageExecs(client, this.newPump(client), (exec, pump) =>
          followExec(exec, this.portFor(client, pump)),
        );
        await client.quit({ signal });
      } finally {
        client.close();
      }
    } catch (error) {
      log('what a lost sandbox wrote last cannot be read', {
        ...this.id,
        reason: messageOf(error),
      });
    }
  }

  private async connect(): Promise<SupervisorClient> {
    const { driver } = this.settings;
    const { signal } = this.stopping;
    signal.throwIfAborted();
    const pipe = await driver.openPipe(this.id, { signal });
    const { epoch, instance } = this.id;
    const client = await SupervisorClient.connect(pipe, { epoch, instance, signal });
    this.memoryKills.begin(() => client.figures({ signal }));
    this.connected(client);
    return client;
  }

  /** Returns never: a broken pipe, a refusal or the worker's stop ends it with its reason. */
  private async followAll(client: SupervisorClient): Promise<void> {
    const signal = this.stopping.signal;
    const close = () => client.close();
    signal.addEventListener('abort', close, { once: true });
    this.pump = this.newPump(client);
    try {
      await Promise.race([
        this.watchExecs(client),
        followPorts(client, signal, (body) => this.reportPort(body)),
        followMemory(
          () => client.figures({ signal }),
          signal,
          (body) => this.report(body),
        ),
        followCpu(
          () => client.figures({ signal }),
          signal,
          (body) => this.report(body),
        ),
        this.failed(client),
      ]);
    } finally {
      signal.removeEventListener('abort', close);
      client.close();
      this.current = this.nextConnection();
      await Promise.allSettled(this.following.values());
      this.following.clear();
    }
  }

  private pump: OutputPump | undefined;
  private fail: (error: unknown) => void = () => undefined;

  private newPump(client: SupervisorClient): OutputPump {
    const { sessionId, epoch, instance } = this.id;
    return new OutputPump({
      send: (items): Promise<OutputAccepted> =>
        this.settings.reporter.output({ sessionId, epoch, instance, items }, this.stopping.signal),
      acknowledge: (execId, offset) => {
        this.carried.set(execId, offset);
        client.acknowledge(execId, offset).catch((error) => this.fail(error));
      },
    });
  }

  private async failed(client: SupervisorClient): Promise<never> {
    const reason = await Promise.race([
      client.ended,
      new Promise<unknown>((resolve) => {
        this.fail = resolve;
      }),
    ]);
    throw reason;
  }

  private async watchExecs(client: SupervisorClient): Promise<void> {
    for await (const item of client.watch({ signal: this.stopping.signal })) {
      if (item.kind === 'exec') this.follow(item.exec, client);
    }
  }

  /** Carries an exec to its end, if that is not being done already. */
  follow(exec: ExecState, client: SupervisorClient): void {
    const pump = this.pump;
    if (!pump || exec.released || this.following.has(exec.execId)) return;
    const followed = followExec(exec, this.portFor(client, pump)).then(
      () => {
        this.following.delete(exec.execId);
        this.carried.delete(exec.execId);
      },
      (error) => this.fail(error),
    );
    this.following.set(exec.execId, followed);
  }

  private portFor(client: SupervisorClient, pump: OutputPump): FollowPort {
    return {
      client,
      pump,
      signal: this.stopping.signal,
      report: (body) => this.report(body),
      explain: (execId, outcome, at) => this.explain(client, execId, outcome, at),
      reach: (stage, at) => this.reach(stage, at),
    };
  }

  private async explain(
    client: SupervisorClient,
    execId: string,
    outcome: Outcome,
    at: number,
  ): Promise<void> {
    const { signal } = this.stopping;
    await this.settings.setup?.conclude(this.id, client, execId, outcome, signal);
    const alone = this.following.size === 1;
    const look = () => client.figures({ signal });
    const kill = await this.memoryKills.reasonOf(outcome, alone, look);
    if (!kill) return;
    const { peakBytes: value, limitBytes: max, certain } = kill;
    const whose = certain ? execId : null;
    const data = { limit: 'memory', level: 'killed', value, max, execId: whose } as const;
    await this.report({ type: 'LimitExceeded', at, data });
  }

  /** What an error means for the sandbox; nothing when the next try may succeed. */
  private async verdict(error: unknown): Promise<Ended | undefined> {
    if (this.stopping.signal.aborted) return { how: 'stopped' };
    if (error instanceof Refusal && error.code === 'wrong_runner') return { how: 'stopped' };
    if (error instanceof Refusal && fencing.has(error.code)) return { how: 'fenced' };
    if (error instanceof OutcomeLost) return { how: 'lost', evidence: error.message };
    if (error instanceof SandboxError && error.next === 'lost') {
      return { how: 'lost', evidence: error.message };
    }
    try {
      const probe = await this.settings.driver.probe(this.id, { signal: this.stopping.signal });
      if (probe.state === 'gone') return { how: 'lost', evidence: probe.evidence };
    } catch (fault) {
      // Unreachable is not lost.
      this.settings.log('a sandbox cannot be probed', { ...this.id, reason: messageOf(fault) });
    }
    return undefined;
  }
}

export class WorkerStopped extends Error {
  constructor() {
    super('the runner lets go of this sandbox');
    this.name = 'WorkerStopped';
  }
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
