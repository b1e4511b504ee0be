import type { ArtifactStore } from '@vmux/artifacts';
import { type Order, type OrderNamed, Refusal, type Stage } from '@vmux/events';
import {
  DriverRefused,
  DriverUnavailable,
  SandboxGone,
  SnapshotUnusable,
  SupervisorRefused,
} from '../errors';
import { Checkpoints, isFinal } from './checkpoints';
import type { Creation, Creations } from './creations';
import { argvOf, environmentOf, signalNumber, workspaceOf } from './exec-facts';
import { expectBuilds, expectLimits } from './expectations';
import { prepare } from './prepare';
import type { Reporter } from './reporter';
import type { RunnerJournal } from './runner-journal';
import { fencing, WorkerStopped } from './sandbox-worker';
import type { Held, Log, Sandboxes } from './sandboxes';
import type { Setup } from './setup';

export interface OrderDeskSettings {
  readonly runnerId: string;
  readonly sandboxes: Sandboxes;
  readonly reporter: Reporter;
  readonly journal: RunnerJournal;
  /** For what is known of files across restarts. */
  readonly indexDirectory?: string;
  readonly artifacts: ArtifactStore | undefined;
  readonly setup: Setup;
  readonly creations: Creations;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/**
 * Carries out orders. An order that fails here is not answered: it is still owed, so it comes again. One
 * that can never succeed is answered with the fact that says so.
 */
export class OrderDesk {
  private readonly underWay = new Map<string, Promise<void>>();
  /** By sandbox: the last request to suspend or resume it. An older one that comes late is void. */
  private readonly lastRest = new WeakMap<Held, number>();
  private readonly checkpoints: Checkpoints;

  constructor(private readonly settings: OrderDeskSettings) {
    this.checkpoints = new Checkpoints(settings);
  }

  /** A repeat of an order that is being carried out is that order. */
  take(order: Order): Promise<void> {
    const known = this.underWay.get(order.orderId);
    if (known) return known;
    const done = this.carryOut(order)
      .catch((error) => this.setAside(order, error))
      .finally(() => this.underWay.delete(order.orderId));
    this.underWay.set(order.orderId, done);
    return done;
  }

  private async carryOut(order: Order): Promise<void> {
    switch (order.type) {
      case 'CreateSandbox':
        return this.create(order);
      case 'AdoptSandbox':
        return this.adopt(order);
      case 'StartExec':
        return this.within(order, (held) => this.start(order, held));
      case 'CancelExec':
        return this.within(order, (held) => this.cancel(order, held));
      case 'SignalExec':
        return this.within(order, (held) => this.signal(order, held));
      case 'DestroySandbox':
        return this.destroy(order);
      case 'SuspendSandbox':
        return this.within(order, (held) => this.suspend(order, held));
      case 'ResumeSandbox':
        return this.within(order, (held) => this.resume(order, held));
      case 'TakeCheckpoint':
        return this.within(order, (held) => this.checkpoint(order, held));
      case 'ArchiveCheckpoint':
        return this.archive(order);
      case 'ForgetSession':
        return this.forgetSession(order.sessionId);
    }
  }

  /** Drops what is kept for a session beside its sandboxes. */
  forgetSession(sessionId: string): Promise<void> {
    return this.checkpoints.forgetSession(this.settings.sandboxes.drivers, sessionId);
  }

  private async create(order: OrderNamed<'CreateSandbox'>): Promise<void> {
    const { sandboxes, creations, signal } = this.settings;
    const { sessionId, epoch, data } = order;
    if (!sandboxes.isKnown(data.provider)) return;
    const found = sandboxes.find(sessionId, epoch);
    const id = found?.id ?? sandboxes.newId(sessionId, epoch);
    const driver = found?.driver ?? sandboxes.driverOf(data.provider);
    const failed = (message: string, retryable: boolean) =>
      this.report(order, id.instance, {
        type: 'SandboxFailed',
        data: { message: message.slice(0, 1000), retryable },
      });
    if (!driver) return failed(`this runner has no provider ${data.provider}`, false);
    let made: Creation | undefined;
    try {
      const stages: [Stage, number][] = [];
      if (!found) {
        const { cpus, memoryMiB, diskMiB, pids, gpu, needsDiskLimit } = data.spec.resources;
        const limits = { cpus, memoryMiB, diskMiB, pids };
        const { egress, allowHosts } = data.spec;
        const { image } = data;
        const { build = [] } = data.spec;
        if (build.length > 0) await expectBuilds(driver);
        await expectLimits(driver, data.spec.resources.needsLimits ?? []);
        const spec = { id, limits, needsDiskLimit, image, build, egress, allowHosts, gpu };
        await creations.of(id, async (creation) => {
          made = creation;
          const options = { signal: creation.signal, onStage: creation.reach };
          await this.checkpoints.create(driver, spec, data.restore, options).catch((error) => {
            if (!(error instanceof DriverRefused)) sandboxes.clearAway(id, driver);
            throw error;
          });
          sandboxes.hold(id, driver);
          stages.push(...creation.stages, ['provisioned', Date.now()]);
        });
      }
      const held = sandboxes.hold(id, driver);
      const { restore, image, allowBaseChange } = data;
      const prepared = await prepare(held, data.spec, this.settings, {
        origin: () => this.checkpoints.originOf(held, image),
        restore: restore
          ? () => this.checkpoints.restore(held, restore, image, allowBaseChange)
          : undefined,
      });
      if (prepared) stages.push(['extracted', prepared.extractedAt]);
      if (restore) stages.push(['restored', Date.now()]);
      const origin = await this.checkpoints.originOf(held, image);
      const setup = restore ? undefined : await this.settings.setup.prepare(held, order, signal);
      if (setup?.installedAt) stages.push(['installed', setup.installedAt]);
      await this.report(order, id.instance, {
        type: 'SandboxReady',
        data: { ...origin, setup: setup?.found ?? null },
      });
      for (const [stage, at] of stages) {
        await this.report(
          order,
          id.instance,
          { type: 'StageReached', data: { stage, execId: null } },
          at,
        );
      }
    } catch (error) {
      // Whoever gave it up says that nothing is left of it.
      if (made?.isGivenUp && !sandboxes.find(sessionId, epoch)) return;
      const final = error instanceof DriverRefused || error instanceof SupervisorRefused;
      const fenced = error instanceof Refusal && fencing.has(error.code);
      if (!final && !fenced && !(error instanceof DriverUnavailable)) throw error;
      const held = sandboxes.find(sessionId, epoch);
      if (held) await sandboxes.destroy(held);
      if (fenced) throw error;
      // From now on that one is not used.
      if (error instanceof SnapshotUnusable) return this.createAgain(order, error);
      await failed(error.message, !final);
    }
  }

  private createAgain(order: OrderNamed<'CreateSandbox'>, { message }: Error): Promise<void> {
    const { sessionId, epoch } = order;
    const facts = { sessionId, epoch, reason: message };
    this.settings.log('a checkpoint is restored from its portable form', facts);
    return this.create(order);
  }

  private async adopt(order: OrderNamed<'AdoptSandbox'>): Promise<void> {
    const { sandboxes, journal } = this.settings;
    const { sessionId, epoch, instance, data } = order;
    const driver = sandboxes.driverOf(data.provider);
    if (!driver || instance === null) return;
    try {
      const { id } = await driver.adopt({ sessionId, epoch, instance });
      // From now on its end is news, also if this runner is not there to see it.
      await journal.recordAdopted(id, data.base);
      sandboxes.hold(id, driver);
    } catch (error) {
      if (!(error instanceof SandboxGone)) throw error;
      const evidence = { kind: 'probe', message: error.message.slice(0, 1000) } as const;
      return this.report(order, instance, { type: 'SandboxLost', data: { evidence } });
    }
    await this.report(order, instance, {
      type: 'SandboxReady',
      data: { base: data.base, restoredDigest: null },
    });
  }

  private async start(order: OrderNamed<'StartExec'>, held: Held): Promise<void> {
    const { execId, spec, env } = order.data;
    const { worker } = held;
    const workspace = workspaceOf(held, spec.cwd);
    const client = await worker.client();
    const exec = await client.start({
      execId,
      argv: argvOf(spec),
      env: environmentOf(order.sessionId, spec, env, workspace),
      cwd: workspace,
      ...(spec.user === null ? {} : { user: spec.user }),
      ...(spec.pty === null ? {} : { pty: spec.pty }),
      stdin: spec.stdin || spec.pty !== null,
    });
    worker.follow(exec, client);
  }

  private async cancel(order: OrderNamed<'CancelExec'>, { worker }: Held): Promise<void> {
    const client = await worker.client();
    worker.follow(await client.cancel(order.data.execId, order.data.graceMs), client);
  }

  private async signal(order: OrderNamed<'SignalExec'>, { id, worker }: Held): Promise<void> {
    const { execId, signalId, signal } = order.data;
    const number = signalNumber(signal);
    const client = await worker.client();
    let delivered = false;
    if (number !== undefined && (await this.settings.journal.claimSignal(id, signalId))) {
      delivered = await client.signal(execId, number).then(
        () => true,
        (error) => {
          if (error instanceof SupervisorRefused) return false;
          throw error;
        },
      );
    }
    await this.report(order, id.instance, {
      type: 'ExecSignalled',
      data: { execId, signalId, delivered },
    });
  }

  private async destroy(order: OrderNamed<'DestroySandbox'>): Promise<void> {
    const { sandboxes, creations } = this.settings;
    const givenUp = await creations.giveUp(order.sessionId, order.epoch);
    const held = sandboxes.find(order.sessionId, order.epoch);
    if (!held && !sandboxes.allKnown) return;
    if (held && (order.instance === null || held.id.instance === order.instance)) {
      if (order.data.drain) await this.endExecs(held, order.data.graceMs);
      await sandboxes.destroy(held);
      await this.checkpoints.forget(held);
    }
    const instance = order.instance ?? held?.id.instance ?? givenUp?.instance;
    if (instance) await this.report(order, instance, { type: 'SandboxReleased', data: {} });
  }

  private async endExecs({ id, driver, worker }: Held, graceMs: number): Promise<void> {
    // What is frozen can neither end nor say how it ended.
    if ((await driver.probe(id)).state === 'suspended') await driver.resume(id);
    const client = await worker.client();
    await client.stop(graceMs);
    await worker.drained();
  }

  /** Requests are numbered by the history: a repeat that was overtaken must not freeze what was resumed. */
  private isOvertaken(held: Held, request: number): boolean {
    const last = this.lastRest.get(held) ?? -1;
    this.lastRest.set(held, Math.max(last, request));
    return request < last;
  }

  /** A runner that was started again knows no earlier requests: the history does. */
  private isUndone(held: Held, request: number, error: unknown): boolean {
    const isLast = this.lastRest.get(held) === request;
    return isLast && error instanceof Refusal && error.code === 'out_of_order';
  }

  private async suspend(order: OrderNamed<'SuspendSandbox'>, held: Held): Promise<void> {
    const { request } = order.data;
    if (this.isOvertaken(held, request)) return;
    const { id, driver } = held;
    try {
      await driver.suspend(id);
      await this.report(order, id.instance, { type: 'SandboxSuspended', data: { request } });
    } catch (error) {
      if (this.isUndone(held, request, error)) return driver.resume(id);
      if (!(error instanceof DriverRefused)) throw error;
      await this.report(order, id.instance, {
        type: 'SuspendFailed',
        data: { request, message: error.message },
      });
    }
  }

  private async resume(order: OrderNamed<'ResumeSandbox'>, held: Held): Promise<void> {
    const { request } = order.data;
    if (this.isOvertaken(held, request)) return;
    const { id, driver, worker } = held;
    try {
      // Suspended from outside, or held still by a checkpoint from inside.
      if ((await driver.probe(id)).state === 'suspended') await driver.resume(id);
      await (await worker.client()).trees.thaw();
      await this.report(order, id.instance, { type: 'SandboxResumed', data: { request } });
    } catch (error) {
      if (this.isUndone(held, request, error)) return driver.suspend(id);
      if (!(error instanceof DriverRefused)) throw error;
      await this.report(order, id.instance, {
        type: 'ResumeFailed',
        data: { request, message: error.message },
      });
    }
  }

  private async checkpoint(order: OrderNamed<'TakeCheckpoint'>, held: Held): Promise<void> {
    const { checkpointId } = order.data;
    try {
      const checkpoint = await this.checkpoints.take(held, order.data);
      await this.report(order, held.id.instance, { type: 'CheckpointTaken', data: { checkpoint } });
    } catch (error) {
      // Nobody waits for it any more: what was held for it goes on.
      if (error instanceof Refusal && order.data.hold)
        await (await held.worker.client()).trees.thaw();
      if (this.settings.signal.aborted || error instanceof Refusal) throw error;
      if (error instanceof WorkerStopped || !isFinal(error)) throw error;
      const message = (error instanceof Error ? error.message : String(error)).slice(0, 1000);
      await this.report(order, held.id.instance, {
        type: 'CheckpointFailed',
        data: { checkpointId, message },
      });
    }
  }

  private async archive(order: OrderNamed<'ArchiveCheckpoint'>): Promise<void> {
    const { checkpoint } = order.data;
    const { checkpointId, native } = checkpoint;
    const driver = native ? this.settings.sandboxes.driverOf(native.provider) : undefined;
    const failed = (message: string) =>
      this.report(order, ARCHIVER, {
        type: 'ArchiveFailed',
        data: { checkpointId, message: message.slice(0, 1000) },
      });
    if (!driver) return failed('this runner has no such provider');
    try {
      await this.checkpoints.archive(driver, checkpoint, (portable) => {
        const data = { checkpointId, ...portable };
        return this.report(order, ARCHIVER, { type: 'CheckpointArchived', data });
      });
    } catch (error) {
      if (this.settings.signal.aborted || error instanceof Refusal || !isFinal(error)) throw error;
      await failed(error instanceof Error ? error.message : String(error));
    }
  }

  /** An order for a sandbox that this runner does not have says by itself that it is lost. */
  private async within(order: Order, act: (held: Held) => Promise<void>): Promise<void> {
    const { sandboxes } = this.settings;
    if (order.instance === null) return;
    const held = sandboxes.find(order.sessionId, order.epoch);
    if (held && held.id.instance === order.instance) return act(held);
    if (!sandboxes.allKnown) return;
    const message = 'its runner does not have this sandbox';
    await this.report(order, order.instance, {
      type: 'SandboxLost',
      data: { evidence: { kind: 'probe', message } },
    });
  }

  private async report(
    order: Order,
    instance: string,
    body: ReportBody,
    at = Date.now(),
  ): Promise<void> {
    const { sessionId, epoch } = order;
    await this.settings.reporter.report(
      { ...body, sessionId, epoch, instance, at } as ReportMessageOf,
      this.settings.signal,
    );
  }

  private setAside(order: Order, error: unknown): void {
    if (this.settings.signal.aborted || error instanceof WorkerStopped) return;
    const reason = error instanceof Error ? error.message : String(error);
    const final = error instanceof Refusal || error instanceof SandboxGone;
    this.settings.log(final ? 'an order is void' : 'an order failed and will come again', {
      orderId: order.orderId,
      reason,
    });
  }
}

/** No sandbox: what it says is about a checkpoint. */
const ARCHIVER = 'archive';

type ReportMessageOf = Parameters<Reporter['report']>[0];
type ReportBody = ReportMessageOf extends infer R
  ? R extends ReportMessageOf
    ? Pick<R, 'type' | 'data'>
    : never
  : never;
