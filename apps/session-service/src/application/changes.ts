import { createHash } from 'node:crypto';
import {
  type ClientCommand,
  type Placement,
  Refusal,
  type Report,
  type SessionEvent,
  type SystemCommand,
} from '@vmux/events';
import type { TraceContext } from '@vmux/messaging';
import { wantedSandbox } from '../domain/consequences';
import { decideCommand, decideReport } from '../domain/decide';
import { foreseen } from '../domain/evolve';
import { EMPTY_LOG, type LogState } from '../domain/log-state';
import { isLiving, type Session } from '../domain/state';
import type { Changed, Deciding } from './deciding';
import type { LogWriting } from './log-writing';
import type { Placing } from './placing';
import type { Cause } from './session-history';
import type { SessionLog } from './session-log';

export interface Outcome extends Changed {
  /** Set when the key had been used before: where its first event stands. */
  readonly repeatedFrom: number | null;
}

/** Commands and reports, each decided on its session's state and on its log's where that matters. */
export class Changes {
  constructor(
    private readonly deciding: Deciding,
    private readonly logs: SessionLog,
    private readonly writing: LogWriting,
    private readonly placing: Placing,
    private readonly now: () => number,
  ) {}

  async command(command: ClientCommand | SystemCommand): Promise<Outcome> {
    let repeatedFrom: number | null = null;
    const { sessionId } = command;
    const otherwise = command.type === 'DeclareLost' ? null : EMPTY_LOG;
    const decide = (session: Session, certain: boolean) =>
      this.withLog(sessionId, session, certain, otherwise, async (log) => {
        const decision = await this.placed(command, session, log);
        repeatedFrom = decision.kind === 'repeated' ? decision.revision : null;
        return decision.kind === 'repeated' ? [] : decision.events;
      });
    const changed = await this.deciding.change({
      sessionId,
      decide,
      cause: causeOf(command),
      key: 'key' in command ? command.key : command.type,
      presumedNew: command.type === 'CreateSession',
    });
    return { ...changed, repeatedFrom };
  }

  report(report: Report, trace?: TraceContext): Promise<Changed> {
    const { sessionId, runnerId, type, epoch, instance } = report;
    return this.deciding.change({
      sessionId,
      decide: (session, certain) =>
        this.withLog(sessionId, session, certain, null, async (log) =>
          decideReport(report, session, log),
        ),
      cause: {
        principal: `runner:${runnerId}`,
        correlationId: trace?.requestId ?? `${type}.${sessionId}.${epoch}`,
        traceparent: trace?.traceparent,
      },
      key: createHash('sha256')
        .update(JSON.stringify([runnerId, type, epoch, instance, report.data]))
        .digest('hex'),
    });
  }

  /** Decided once without a runner; with one if it turns out that a sandbox is wanted. */
  private async placed(command: ClientCommand | SystemCommand, session: Session, log: LogState) {
    const placement: Placement | null =
      command.type === 'CreateSession' ? await this.placing.forNew(command.data) : null;
    const decision = decideCommand({ ...command, placement }, session, log);
    if (decision.kind === 'repeated') return decision;
    const elsewhere = providerNamed(command);
    if (elsewhere !== null) await this.placing.expectOffered(elsewhere);
    const next = foreseen(session, decision.events);
    const wanted = isLiving(next) ? wantedSandbox(next) : null;
    const found = wanted && isLiving(next) ? this.placing.forWanted(next, wanted) : null;
    return found ? decideCommand({ ...command, placement: found }, session, log) : decision;
  }

  /**
   * Most decisions need nothing of the log; those that do say so. Closing a log cannot be taken back, so
   * it is done on the session's head alone.
   */
  private async withLog(
    sessionId: string,
    session: Session,
    certain: boolean,
    otherwise: LogState | null,
    decide: (log: LogState) => Promise<readonly SessionEvent[]>,
  ): Promise<readonly SessionEvent[]> {
    let log = this.logs.guess(sessionId) ?? otherwise ?? (await this.logs.load(sessionId));
    for (let step = 0; ; step += 1) {
      try {
        return await decide(log);
      } catch (fault) {
        const code = fault instanceof Refusal ? fault.code : null;
        if ((code !== 'log_open' && code !== 'log_behind') || step === 2) throw fault;
        if (step === 1 && (code === 'log_behind' || !certain)) throw fault;
        if (step === 1 && isLiving(session) && session.current)
          await this.writing.close(sessionId, session.current, this.now());
        log = await this.logs.load(sessionId);
      }
    }
  }
}

/** Where the command sends a session, or makes others, by its own word. */
const providerNamed = ({ type, data }: ClientCommand | SystemCommand): string | null =>
  type === 'MoveSession' || type === 'ForkSession' || type === 'RehydrateSession'
    ? data.provider
    : null;

export function causeOf(command: ClientCommand | SystemCommand): Cause {
  const { principal, correlationId } = command;
  const traceparent = command.traceparent ?? undefined;
  if (!('key' in command)) return { principal, correlationId, traceparent };
  const { key, digest } = command;
  return { key, digest, principal, correlationId, traceparent };
}
