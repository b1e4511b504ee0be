import {
  type CommandNamed,
  fact,
  Refusal,
  type ReportNamed,
  type SessionEvent,
} from '@vmux/events';
import { deletion, rehydration } from './consequences';
import { abandoned, loss } from './endings';
import { fromCurrent, livingSession, ownSession } from './fences';
import type { LogState } from './log-state';
import { isLiving, type Living, MAX_PORTS, type Session } from './state';

export function create(command: CommandNamed<'CreateSession'>, session: Session): SessionEvent[] {
  const { sessionId, owner, at, data, placement } = command;
  if (session.status === 'deleted' && session.createdBy === command.key)
    throw new Refusal('session_deleted', `${sessionId} was deleted: use a new key`, { sessionId });
  if (session.status !== 'unborn')
    throw new Refusal('name_taken', `${sessionId} is taken: try the next attempt`, {
      sessionId,
      attempt: data.attempt,
    });
  if (placement?.provider !== data.provider)
    throw new Refusal('no_placement', `no runner offers ${data.provider} now: start one`, {
      provider: data.provider,
    });
  if (data.spec.resources.gpu !== null && !placement.capabilities.includes('gpu'))
    throw new Refusal(
      'not_supported',
      `${data.provider} has no GPU here: choose another provider`,
      {
        provider: data.provider,
        capability: 'gpu',
      },
    );
  if (data.spec.build?.length && !placement.capabilities.includes('build'))
    throw new Refusal(
      'not_supported',
      `${data.provider} builds no images here: name one that is ready, or choose another provider`,
      { provider: data.provider, capability: 'build' },
    );
  return [fact('SessionCreated', { ...data, at, sessionId, owner })];
}

export function stop(
  { sessionId, owner, at, principal, data }: CommandNamed<'StopSession'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  const known = ownSession(session, sessionId, owner);
  if (!isLiving(known)) return [];
  const gone = data.force && known.current !== null;
  const end = gone ? loss(known, log, { kind: 'decision', by: principal }, at) : [];
  if (known.status === 'stopping') return end;
  const graceMs = data.graceMs ?? known.spec.policy.stopGraceMs;
  const request = fact('StopRequested', { at, cause: 'request', graceMs, thenDelete: false });
  return [request, ...abandoned(known, 'stop', at), ...end];
}

export function remove(
  { sessionId, owner, at, data }: CommandNamed<'DeleteSession'>,
  session: Session,
): SessionEvent[] {
  if (session.status === 'deleted' && session.owner === owner) return [];
  const known = ownSession(session, sessionId, owner);
  if (!isLiving(known)) return [deletion(known, at)];
  if (!data.force)
    throw new Refusal('session_live', `${sessionId} is live: stop it first, or force`, {
      sessionId,
      status: known.status,
    });
  if (known.status === 'stopping' && known.stop.thenDelete) return [];
  const graceMs = known.spec.policy.stopGraceMs;
  return [
    fact('StopRequested', { at, cause: 'request', graceMs, thenDelete: true }),
    ...abandoned(known, 'stop', at),
  ];
}

/** Attaching and previews wake what rests; while something is underway they wait for it. */
export function wake(
  { sessionId, owner, at, data: { cause } }: CommandNamed<'WakeSession'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  if (living.status === 'stopping')
    throw new Refusal('session_ended', `${sessionId} is stopping`, { sessionId });
  if (living.operation) return observed(living, cause, at);
  if (living.status === 'suspended')
    return [fact('ResumeRequested', { at, epoch: living.current.epoch, cause })];
  if (living.status !== 'lost' && living.status !== 'released') return observed(living, cause, at);
  if (living.status === 'lost' && living.spec.policy.rehydrate === 'never')
    throw new Refusal('not_running', `the sandbox was lost: rehydrate ${sessionId}`, { sessionId });
  return [rehydration(living, cause, at)];
}

export const noteActivity = (
  { sessionId, owner, at, data }: CommandNamed<'NoteActivity'>,
  session: Session,
): SessionEvent[] => observed(livingSession(session, sessionId, owner), data.activity, at);

export const activityObserved = (
  report: ReportNamed<'ActivityObserved'>,
  session: Session,
): SessionEvent[] => observed(fromCurrent(report, session), report.data.activity, report.at);

/** At most once per quarter of the idle timeout. */
function observed(
  session: Living,
  activity: 'exec' | 'attach' | 'stdin' | 'preview' | 'files' | 'cpu',
  at: number,
): SessionEvent[] {
  const { idleTimeoutMs } = session.spec.policy;
  if (idleTimeoutMs === null || at - session.lastActivityAt < idleTimeoutMs / 4) return [];
  return [fact('ActivityObserved', { at, activity })];
}

export function portOpened(report: ReportNamed<'PortOpened'>, session: Session): SessionEvent[] {
  const { ports } = fromCurrent(report, session);
  const { at, epoch, data } = report;
  const known = ports[data.port];
  if (known && (known.open || known.changedAt >= at)) return [];
  if (Object.values(ports).filter(({ open }) => open).length >= MAX_PORTS)
    throw new Refusal('too_many', `a session shows ${MAX_PORTS} open ports`, { max: MAX_PORTS });
  return [fact('PortOpened', { at, epoch, ...data })];
}

export function portClosed(report: ReportNamed<'PortClosed'>, session: Session): SessionEvent[] {
  const { ports } = fromCurrent(report, session);
  const { at, epoch, data } = report;
  const known = ports[data.port];
  if (!known?.open || known.changedAt >= at) return [];
  return [fact('PortClosed', { at, epoch, ...data })];
}

export function setupDetected(
  report: ReportNamed<'SetupDetected'>,
  session: Session,
): SessionEvent[] {
  const { at, epoch, data } = report;
  if (lastNoted(fromCurrent(report, session), null, 'setup') !== null) return [];
  return [fact('SetupDetected', { at, epoch, ...data })];
}

export function stageReached(
  report: ReportNamed<'StageReached'>,
  session: Session,
): SessionEvent[] {
  const { at, epoch, data } = report;
  const living = fromCurrent(report, session);
  if (isGone(living, data.execId)) return [];
  if (lastNoted(living, data.execId, `stage:${data.stage}`) !== null) return [];
  return [fact('StageReached', { at, epoch, ...data })];
}

export function limitExceeded(
  report: ReportNamed<'LimitExceeded'>,
  session: Session,
): SessionEvent[] {
  const { at, data } = report;
  const living = fromCurrent(report, session);
  if (isGone(living, data.execId)) return [];
  const last = lastNoted(living, data.execId, `limit:${data.limit}:${data.level}`);
  return last !== null && last >= at ? [] : [fact('LimitExceeded', { at, ...data })];
}

const isGone = (session: Living, execId: string | null): boolean =>
  execId !== null && !Object.hasOwn(session.execs, execId);

const lastNoted = (session: Living, execId: string | null, what: string): number | null =>
  (execId === null ? session.noted : session.execs[execId]?.noted)?.[what] ?? null;
