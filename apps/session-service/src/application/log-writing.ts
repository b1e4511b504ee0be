import { randomUUID } from 'node:crypto';
import { WrongRevision } from '@vmux/event-store';
import { Failure, type LogEvent } from '@vmux/events';
import { closeLog, type LogFence, logFenceOf } from '../domain/log-fold';
import type { LogState } from '../domain/log-state';
import type { Session } from '../domain/state';
import { KeyedQueue } from './keyed-queue';
import type { Log } from './log';
import { Patience } from './patience';
import type { SessionHistory } from './session-history';
import type { SessionLog } from './session-log';

const MAX_WAITING = 1000;

export interface LogWrite<R> {
  readonly events: readonly LogEvent[];
  readonly result: R;
  /** A refusal made on a guess is made again on what the store has. */
  readonly refused: boolean;
}

/** Appends to logs at the revision that was read, one write at a time for each session. */
export class LogWriting {
  private readonly queue = new KeyedQueue(MAX_WAITING);
  private readonly fences = new WeakMap<Session, LogFence>();

  constructor(
    private readonly history: SessionHistory,
    private readonly logs: SessionLog,
    private readonly log: Log,
  ) {}

  /** `decide` may be asked several times, each time with a newer state. */
  write<R>(sessionId: string, decide: (log: LogState, fence: LogFence) => LogWrite<R>): Promise<R> {
    return this.queue.run(sessionId, () => this.attempt(sessionId, decide));
  }

  /** No more output of this epoch. */
  close(
    sessionId: string,
    sandbox: { readonly epoch: number; readonly instance: string },
    at: number,
  ): Promise<void> {
    return this.write<void>(sessionId, (log, fence) => ({
      events: closeLog(log, fence, sandbox, at),
      result: undefined,
      // What a guess takes for closed may be another epoch's.
      refused: true,
    }));
  }

  idle(): Promise<void> {
    return this.queue.idle();
  }

  private async attempt<R>(
    sessionId: string,
    decide: (log: LogState, fence: LogFence) => LogWrite<R>,
  ): Promise<R> {
    let session = this.history.guess(sessionId);
    let log = this.logs.guess(sessionId);
    let certain = session === undefined && log === undefined;
    session ??= await this.history.load(sessionId);
    log ??= await this.logs.load(sessionId);
    const patience = new Patience();
    do {
      const { events, result, refused } = decide(log, this.fenceOf(session.session));
      if (!refused || certain) {
        if (events.length === 0) return result;
        if (await this.appended(sessionId, log, events)) return result;
        await patience.afterConflict();
      }
      session = await this.history.load(sessionId);
      log = await this.logs.load(sessionId);
      certain = true;
    } while (!patience.isOver);
    throw new Failure('conflict', `too much is written to ${sessionId} at once`, true, 200);
  }

  /** False on a conflict. */
  private async appended(
    sessionId: string,
    before: LogState,
    events: readonly LogEvent[],
  ): Promise<boolean> {
    try {
      await this.logs.append(sessionId, before, events, randomUUID());
    } catch (fault) {
      if (fault instanceof WrongRevision) return false;
      throw fault;
    }
    await this.truncated(sessionId, events);
    return true;
  }

  /** Recorded first, then dropped: a crash between the two leaves it to the next truncation. */
  private async truncated(sessionId: string, events: readonly LogEvent[]): Promise<void> {
    const truncation = events.findLast((event) => event.type === 'LogTruncated');
    if (truncation?.type !== 'LogTruncated') return;
    await this.logs.truncate(sessionId, truncation.revision).catch((fault: unknown) => {
      this.log.warn({ sessionId, fault }, 'old output could not be dropped yet');
    });
  }

  private fenceOf(session: Session): LogFence {
    const fence = this.fences.get(session) ?? logFenceOf(session);
    this.fences.set(session, fence);
    return fence;
  }
}
