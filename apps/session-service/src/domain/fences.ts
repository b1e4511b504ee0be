import { fact, Refusal, type Report, type SessionEvent, type UnknownReason } from '@vmux/events';
import { type LogState, sizesIn } from './log-state';
import {
  type Current,
  dispatchedTo,
  type Existing,
  exists,
  isLiving,
  type Living,
  type Pending,
  type Session,
} from './state';

/** Whose a session is, is told to nobody else. */
export function ownSession(session: Session, sessionId: string, owner: string): Existing {
  if (session.status === 'deleted' && session.owner === owner)
    throw new Refusal('session_deleted', `${sessionId} was deleted: create another session`, {
      sessionId,
    });
  if (!exists(session) || session.owner !== owner) throw noSession(sessionId);
  return session;
}

export function livingSession(session: Session, sessionId: string, owner: string): Living {
  return alive(ownSession(session, sessionId, owner));
}

export function alive(session: Existing): Living {
  if (isLiving(session)) return session;
  const { sessionId, status } = session;
  throw new Refusal('session_ended', `${sessionId} is ${status}: fork it or create another`, {
    sessionId,
    status,
  });
}

export const noSession = (sessionId: string): Refusal =>
  new Refusal('session_not_found', `there is no session ${sessionId}: list yours to see them`, {
    sessionId,
  });

export const notRunning = ({ sessionId, status }: Living): Refusal =>
  new Refusal('not_running', `${sessionId} is ${status}: resume it first`, { sessionId, status });

export const noCheckpoint = (checkpointId: string): Refusal =>
  new Refusal('checkpoint_not_found', `there is no checkpoint ${checkpointId}: list them`, {
    checkpointId,
  });

/** One request at a time changes the sandbox. */
export function nothingUnderway(session: Living): void {
  if (session.status === 'stopping')
    throw new Refusal('session_ended', `${session.sessionId} is stopping`, {
      sessionId: session.sessionId,
      status: session.status,
    });
  const underway = session.operation?.kind ?? (session.replay ? 'replay' : undefined);
  if (underway)
    throw new Refusal('operation_underway', `wait until the ${underway} is done, then ask again`, {
      underway,
    });
}

/** The report is about the current sandbox, from the runner that holds it. */
export function fromCurrent(report: Report, session: Session): Living & { current: Current } {
  if (session.status === 'unborn') throw noSession(report.sessionId);
  if (!isLiving(session)) throw stale(report, session);
  const { current } = session;
  if (!current || report.epoch !== current.epoch || report.instance !== current.instance)
    throw stale(report, session);
  sentBy(report, current.runnerId);
  return session as Living & { current: Current };
}

export function fromPending(report: Report, session: Session): Living & { pending: Pending } {
  if (session.status === 'unborn') throw noSession(report.sessionId);
  if (!isLiving(session) || session.pending?.epoch !== report.epoch) throw stale(report, session);
  sentBy(report, session.pending.runnerId);
  return session as Living & { pending: Pending };
}

export function sentBy(report: Report, runnerId: string): void {
  if (report.runnerId !== runnerId)
    throw new Refusal('wrong_runner', 'another runner has this sandbox now: let go of it', {
      epoch: report.epoch,
    });
}

/** Whoever gets this destroys its sandbox. */
export const stale = (report: Report, session: Session): Refusal =>
  new Refusal('stale_epoch', 'this sandbox is no longer the session’s: destroy it', {
    epoch: report.epoch,
    instance: report.instance,
    currentEpoch: isLiving(session) ? (session.current?.epoch ?? null) : null,
  });

/**
 * The current sandbox's execs end as unknown, with the sizes that the log was closed with. Until it is
 * closed there may be more, so closing it comes first.
 */
export function outcomesUnknown(
  session: Living & { readonly current: Current },
  log: LogState,
  reason: UnknownReason,
  at: number,
): SessionEvent[] {
  const { epoch } = session.current;
  if (log.epoch < epoch || (log.epoch === epoch && !log.closed))
    throw new Refusal('log_open', `close the log of epoch ${epoch}, then decide again`, { epoch });
  return dispatchedTo(session, epoch).map(({ execId }) =>
    fact('ExecOutcomeUnknown', { at, execId, epoch, reason, sizes: sizesIn(log, execId) }),
  );
}
