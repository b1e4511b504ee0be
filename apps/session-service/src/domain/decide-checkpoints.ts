import {
  type CommandNamed,
  fact,
  Refusal,
  type Report,
  type ReportNamed,
  type SessionEvent,
} from '@vmux/events';
import {
  fromCurrent,
  livingSession,
  noCheckpoint,
  noSession,
  nothingUnderway,
  notRunning,
  ownSession,
  sentBy,
  stale,
} from './fences';
import {
  acceptsWork,
  canDo,
  checkpointOf,
  type Existing,
  exists,
  isLiving,
  type Living,
  lastCheckpoint,
  MAX_OPEN_FORKS,
  type Running,
  type Session,
} from './state';

export function take(
  { sessionId, owner, at, data }: CommandNamed<'TakeCheckpoint'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { current } = checkpointable(living, data.checkpointId);
  const { checkpointId, name } = data;
  const { epoch } = current;
  return [
    fact('CheckpointRequested', { at, checkpointId, epoch, name, cause: 'request', hold: false }),
  ];
}

export function checkpointable(session: Living, checkpointId: string): Running {
  nothingUnderway(session);
  if (!acceptsWork(session)) throw notRunning(session);
  if (!canDo(session.current, 'checkpoint'))
    throw new Refusal('not_supported', `${session.provider} takes no checkpoints`, {
      provider: session.provider,
      capability: 'checkpoint',
    });
  if (checkpointOf(session, checkpointId))
    throw new Refusal('id_taken', `${checkpointId} exists: use another id`, { checkpointId });
  return session;
}

export function taken(report: ReportNamed<'CheckpointTaken'>, session: Session): SessionEvent[] {
  const living = fromCurrent(report, session);
  const { checkpoint } = report.data;
  if (checkpointOf(living, checkpoint.checkpointId)) return takenBefore(living);
  expectUnderway(living, checkpoint.checkpointId);
  if (checkpoint.epoch !== report.epoch)
    throw new Refusal('out_of_order', 'a checkpoint is of the sandbox that reports it', {
      epoch: report.epoch,
    });
  return [fact('CheckpointTaken', { at: report.at, checkpoint })];
}

/** What was held for it and goes on since must not be held again by an order that came late. */
function takenBefore({ status, current, operation }: Living): SessionEvent[] {
  if (status === 'running' && !current.frozen && !operation)
    throw new Refusal('out_of_order', 'it was taken before: let the sandbox go on', {
      epoch: current.epoch,
    });
  return [];
}

export function failed(report: ReportNamed<'CheckpointFailed'>, session: Session): SessionEvent[] {
  const living = fromCurrent(report, session);
  const { at, data } = report;
  const { operation } = living;
  if (!operation || !('checkpointId' in operation) || operation.checkpointId !== data.checkpointId)
    return [];
  if ('taken' in operation && operation.taken) return [];
  const failure = fact('CheckpointFailed', { at, ...data });
  if (operation.kind === 'move')
    return [failure, fact('MoveFailed', { at, message: data.message })];
  return operation.kind === 'checkpoint' || operation.kind === 'release' ? [failure] : [];
}

/** From the runner that has the checkpoint in its own form, whatever became of the sandbox. */
export function archived(
  report: ReportNamed<'CheckpointArchived'>,
  session: Session,
): SessionEvent[] {
  const { at, data } = report;
  return isUnarchived(report, session, data.checkpointId)
    ? [fact('CheckpointArchived', { at, ...data })]
    : [];
}

export function archiveFailed(
  report: ReportNamed<'ArchiveFailed'>,
  session: Session,
): SessionEvent[] {
  const { at, data } = report;
  return isUnarchived(report, session, data.checkpointId)
    ? [fact('ArchiveFailed', { at, ...data })]
    : [];
}

/** Nothing follows from it; who holds something for a session that was deleted is told. */
export function held(
  { sessionId }: ReportNamed<'CheckpointsHeld'>,
  session: Session,
): SessionEvent[] {
  if (session.status === 'deleted')
    throw new Refusal('session_deleted', `${sessionId} was deleted: drop what is kept for it`, {
      sessionId,
    });
  if (!exists(session)) throw noSession(sessionId);
  return [];
}

function isUnarchived(report: Report, session: Session, checkpointId: string): boolean {
  if (!exists(session)) throw stale(report, session);
  const native = checkpointOf(session, checkpointId)?.native;
  if (!native) throw noCheckpoint(checkpointId);
  sentBy(report, native.runnerId);
  return session.unarchived.includes(checkpointId);
}

function expectUnderway({ operation }: Living, checkpointId: string): void {
  const underway =
    (operation?.kind === 'checkpoint' ||
      operation?.kind === 'release' ||
      operation?.kind === 'move') &&
    operation.checkpointId === checkpointId;
  if (!underway) throw noCheckpoint(checkpointId);
}

export function rollback(
  { sessionId, owner, at, data }: CommandNamed<'RollbackSession'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  nothingUnderway(living);
  if (!checkpointOf(living, data.checkpointId)) throw noCheckpoint(data.checkpointId);
  return [fact('RollbackRequested', { at, ...data })];
}

/** The source is frozen by a checkpoint that holds it; the rest follows from the checkpoint. */
export function move(
  { sessionId, owner, at, data }: CommandNamed<'MoveSession'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { provider, checkpointId } = data;
  const { current } = checkpointable(living, checkpointId);
  if (provider === current.provider)
    throw new Refusal('nothing_to_do', `${sessionId} is on ${provider} already`, { provider });
  const { epoch } = current;
  return [
    fact('MoveRequested', { at, ...data }),
    fact('CheckpointRequested', {
      at,
      checkpointId,
      epoch,
      name: null,
      cause: 'move',
      hold: true,
    }),
  ];
}

/** From the checkpoint named, else from a new one, else, without a sandbox, from the last one. */
export function fork(
  { sessionId, owner, at, data }: CommandNamed<'ForkSession'>,
  session: Session,
): SessionEvent[] {
  const known = ownSession(session, sessionId, owner);
  const { forkId, name, count } = data;
  if (known.forks.length >= MAX_OPEN_FORKS)
    throw new Refusal('too_many', `${MAX_OPEN_FORKS} forks are underway: wait`, {
      max: MAX_OPEN_FORKS,
    });
  const provider = data.provider ?? known.provider;
  const request = (checkpointId: string): SessionEvent =>
    fact('ForkRequested', { at, forkId, checkpointId, name, count, provider });
  const stored = storedCheckpoint(known, data.checkpointId);
  if (stored) return [request(stored)];
  const checkpointId = data.newCheckpointId;
  const { epoch } = checkpointable(known as Living, checkpointId).current;
  return [
    request(checkpointId),
    fact('CheckpointRequested', {
      at,
      checkpointId,
      epoch,
      name: null,
      cause: 'fork',
      hold: false,
    }),
  ];
}

function storedCheckpoint(session: Existing, wanted: string | null): string | null {
  if (wanted !== null) {
    if (!checkpointOf(session, wanted)) throw noCheckpoint(wanted);
    return wanted;
  }
  if (isLiving(session) && session.status !== 'stopping' && session.current) return null;
  const last = lastCheckpoint(session);
  if (last) return last.checkpointId;
  throw new Refusal('checkpoint_not_found', 'there is no checkpoint to fork from', {
    sessionId: session.sessionId,
  });
}

export function recordFork(
  { at, data }: CommandNamed<'RecordFork'>,
  session: Session,
): SessionEvent[] {
  if (session.status === 'unborn' || session.status === 'deleted') return [];
  const { forkId, index, child } = data;
  const open = session.forks.find((each) => each.forkId === forkId);
  if (!open?.missing.includes(index)) return [];
  return [fact('Forked', { at, forkId, index, child, checkpointId: open.checkpointId })];
}
