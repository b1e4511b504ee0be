import {
  NO_OUTPUT,
  type OutputReport,
  Refusal,
  type Report,
  type SealedOrder,
  type Sizes,
} from '@vmux/events';
import type { Decision } from '../src/domain/decide';
import { closeLog, decideOutput, logFenceOf } from '../src/domain/log-fold';
import { evolveLog, type LogState } from '../src/domain/log-state';
import { react } from '../src/domain/react';
import { isLiving, type Session } from '../src/domain/state';
import {
  checkpoint,
  checkpointNo,
  hex,
  nativeCheckpoint,
  placementOn,
  SESSION_ID,
  systemCommand,
} from './domain-makers';
import {
  appended,
  decideMessage,
  type Message,
  metadataOf,
  NOTHING_YET,
  type Past,
} from './domain-spec';

/** A session with a session service and runners around it that make no mistakes. */
export class World {
  past: Past = NOTHING_YET;
  now = 1_000;
  /** Messages that changed something. */
  readonly effective: Message[] = [];
  /** By exec: how much it has written, in runners' minds. */
  private readonly written = new Map<string, Sizes>();
  private readonly runningExecs = new Map<string, Report>();

  get session(): Session {
    return this.past.session;
  }
  get log(): LogState {
    return this.past.log;
  }

  /** The number of events, or the refusal. Throws whatever else is thrown. */
  deliver(message: Message): number | Refusal {
    const decision = this.decide(message);
    if (decision instanceof Refusal) return decision;
    const events = decision.kind === 'append' ? decision.events : [];
    this.past = appended(this.past, events, metadataOf(message));
    if (events.length > 0) this.effective.push(message);
    return events.length;
  }

  /** One of the orders that are owed is carried out; false when there are none. */
  serve(pick: number): boolean {
    const { orders } = react(this.session, this.now);
    const order = orders[pick % Math.max(orders.length, 1)];
    if (order) this.carryOut(order);
    return order !== undefined;
  }

  /** Runners are found, deadlines fire and children are made. */
  attend(): boolean {
    const { place, deadlines, forks } = react(this.session, this.now);
    if (place)
      this.deliver(
        systemCommand('PlaceSandbox', {}, { placement: placementOn(place.provider), at: this.now }),
      );
    for (const { kind, execId } of deadlines)
      this.deliver(
        systemCommand(
          'FireDeadline',
          { kind, execId, checkpointId: checkpointNo(this.past.history.length + 100) },
          { at: this.now },
        ),
      );
    for (const { forkId, index } of forks)
      this.deliver(
        systemCommand(
          'RecordFork',
          { forkId, index, child: `kid-00${10 + index}` },
          { at: this.now },
        ),
      );
    return place !== null || deadlines.length > 0 || forks.length > 0;
  }

  /** One exec that runs writes something and then ends. */
  finish(pick: number): boolean {
    const [execId, start] =
      [...this.runningExecs][pick % Math.max(this.runningExecs.size, 1)] ?? [];
    if (execId === undefined || !start) return false;
    this.runningExecs.delete(execId);
    this.write(execId, start, 5);
    const sizes = this.written.get(execId) ?? NO_OUTPUT;
    const outcome = { kind: 'exited' as const, code: 0 };
    const data = { execId, outcome, sizes, usage: null };
    this.deliver({ ...this.reportFrom(start), type: 'ExecExited', data });
    return true;
  }

  settle(): void {
    for (let round = 0; round < 500; round += 1) {
      const busy = this.attend() || this.serve(round) || this.finish(round);
      if (!busy) return;
    }
    throw new Error(`it does not settle: ${JSON.stringify(react(this.session, this.now))}`);
  }

  private decide(message: Message): Decision | Refusal {
    try {
      return decideMessage(message, this.session, this.log);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.code !== 'log_open') return error;
      this.close();
      return this.decide(message);
    }
  }

  private close(): void {
    if (!isLiving(this.session) || !this.session.current) return;
    const events = closeLog(this.log, logFenceOf(this.session), this.session.current, this.now);
    for (const event of events)
      this.past = {
        ...this.past,
        log: evolveLog(this.log, { event, revision: this.log.revision + 1 }),
      };
  }

  private write(execId: string, start: Report, length: number): void {
    const sizes = this.written.get(execId) ?? NO_OUTPUT;
    const output: OutputReport = {
      sessionId: SESSION_ID,
      epoch: start.epoch,
      instance: start.instance,
      runnerId: start.runnerId,
      items: [
        {
          kind: 'chunk',
          execId,
          stream: 'stdout',
          offset: sizes.stdout,
          at: this.now,
          bytes: Buffer.alloc(length),
        },
      ],
    };
    this.written.set(execId, { ...sizes, stdout: sizes.stdout + length });
    try {
      for (const event of decideOutput(output, this.log, logFenceOf(this.session)).events)
        this.past = {
          ...this.past,
          log: evolveLog(this.log, { event, revision: this.log.revision + 1 }),
        };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
  }

  private carryOut(order: SealedOrder): void {
    const from = { ...order, instance: order.instance ?? `i-${order.epoch}` };
    if (order.type === 'StartExec') this.runningExecs.set(order.data.execId, this.reportFrom(from));
    if (order.type === 'CancelExec') this.runningExecs.delete(order.data.execId);
    this.deliver({ ...this.reportFrom(from), ...this.answerTo(order) } as Report);
  }

  private answerTo(order: SealedOrder): Pick<Report, 'type' | 'data'> {
    switch (order.type) {
      case 'CreateSandbox': {
        const restoredDigest = order.data.restore?.manifestDigest ?? null;
        return { type: 'SandboxReady', data: { base: null, restoredDigest } };
      }
      case 'AdoptSandbox':
        return { type: 'SandboxReady', data: { base: null, restoredDigest: null } };
      case 'StartExec':
        return { type: 'ExecStarted', data: { execId: order.data.execId, pid: 1 } };
      case 'CancelExec': {
        const { execId } = order.data;
        const sizes = this.written.get(execId) ?? NO_OUTPUT;
        const outcome = { kind: 'signalled' as const, signal: 'SIGTERM' };
        return { type: 'ExecExited', data: { execId, outcome, sizes, usage: null } };
      }
      case 'SignalExec': {
        const { execId, signalId } = order.data;
        return { type: 'ExecSignalled', data: { execId, signalId, delivered: true } };
      }
      case 'DestroySandbox':
        return { type: 'SandboxReleased', data: {} };
      case 'SuspendSandbox':
        return { type: 'SandboxSuspended', data: order.data };
      case 'ResumeSandbox':
        return { type: 'SandboxResumed', data: order.data };
      case 'TakeCheckpoint': {
        const { checkpointId } = order.data;
        const made = order.epoch % 2 === 0 ? nativeCheckpoint : checkpoint;
        const stored = { ...made(1, order.epoch, order.runnerId), checkpointId };
        return { type: 'CheckpointTaken', data: { checkpoint: stored } };
      }
      case 'ForgetSession':
        throw new Error('nothing that a state owes');
      case 'ArchiveCheckpoint': {
        const { checkpointId, bytes, newBytes } = order.data.checkpoint;
        const portable = { artifact: hex('b'), manifestDigest: hex('c'), bytes, newBytes };
        return { type: 'CheckpointArchived', data: { checkpointId, ...portable } };
      }
    }
  }

  private reportFrom({ epoch, instance, runnerId }: Sender): Report {
    const data = { port: 1 };
    const at = this.now;
    return { type: 'PortClosed', sessionId: SESSION_ID, epoch, instance, runnerId, at, data };
  }
}

interface Sender {
  readonly epoch: number;
  readonly instance: string;
  readonly runnerId: string;
}
