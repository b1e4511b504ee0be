import {
  type CommandNamed,
  fact,
  type LossEvidence,
  Refusal,
  type ReportNamed,
  type SessionEvent,
} from '@vmux/events';
import { neverStarted } from './consequences';
import { abandoned, loss } from './endings';
import { fromCurrent, fromPending, outcomesUnknown, sentBy, stale } from './fences';
import type { LogState } from './log-state';
import { setupOf } from './setup';
import {
  type Current,
  exists,
  isLiving,
  type Living,
  MAX_STARTS,
  type Pending,
  REASSIGN_AFTER_MS,
  type Session,
} from './state';

/** The pending sandbox becomes the current one; what ran in the one before ends as unknown. */
export function ready(
  report: ReportNamed<'SandboxReady'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  if (exists(session) && session.current?.epoch === report.epoch)
    return readyAgain(report, session);
  const living = fromPending(report, session);
  const { pending, current } = living;
  const { at, epoch, instance, runnerId, data } = report;
  if (pending.restore && data.restoredDigest !== pending.restore.manifestDigest)
    return failedStart(living, 'the restored files are not those of the checkpoint', REFUSED, at);
  const { restore } = pending;
  const before = current
    ? outcomesUnknown(
        { ...living, current } as Living & { readonly current: Current },
        log,
        pending.purpose === 'move' ? 'moved' : 'rolled_back',
        at,
      )
    : [];
  const restored = restore && {
    checkpointId: restore.checkpointId,
    manifestDigest: restore.manifestDigest,
  };
  return [
    ...before,
    fact('SandboxStarted', { at, epoch, instance, runnerId, base: data.base, restored }),
    ...(data.setup ? setupOf(living, data.setup, epoch, at) : []),
    ...fulfilled(living, at),
  ];
}

function readyAgain(report: ReportNamed<'SandboxReady'>, session: Session): SessionEvent[] {
  const { current } = fromCurrent(report, session);
  const { at, epoch, instance, runnerId } = report;
  return current.adopting ? [fact('SandboxAdopted', { at, epoch, instance, runnerId })] : [];
}

function fulfilled({ operation, pending, provider }: Living, at: number): SessionEvent[] {
  if (!pending) return [];
  const { epoch } = pending;
  if (operation?.kind === 'rollback')
    return [fact('RolledBack', { at, checkpointId: operation.checkpointId, epoch })];
  if (operation?.kind === 'move')
    return [fact('Moved', { at, from: provider, to: operation.provider, epoch })];
  return [];
}

export function failed(report: ReportNamed<'SandboxFailed'>, session: Session): SessionEvent[] {
  if (isLiving(session) && session.current?.epoch === report.epoch)
    throw new Refusal('out_of_order', 'this sandbox has started: report it as lost', {
      epoch: report.epoch,
    });
  const { message, retryable } = report.data;
  const fate = { retryable, mayRemain: false };
  return failedStart(fromPending(report, session), message, fate, report.at);
}

interface Fate {
  readonly retryable: boolean;
  readonly mayRemain: boolean;
}
const REFUSED: Fate = { retryable: false, mayRemain: true };
const UNREACHABLE: Fate = { retryable: true, mayRemain: true };

function failedStart(
  session: Living & { readonly pending: Pending },
  message: string,
  { retryable, mayRemain }: Fate,
  at: number,
): SessionEvent[] {
  const { operation, pending } = session;
  const { epoch } = pending;
  const failure = fact('SandboxFailed', { at, epoch, message, retryable, mayRemain });
  switch (operation?.kind) {
    case 'create':
      if (retryable && operation.starts < MAX_STARTS) return [failure];
      return [
        failure,
        ...neverStarted(session, 'session_failed', at),
        fact('SessionFailed', { at, message }),
      ];
    case 'rehydrate':
      if (retryable && operation.starts < MAX_STARTS) return [failure];
      return [
        failure,
        fact('RestoreFailed', { at, checkpointId: operation.checkpointId, message }),
        ...neverStarted(session, 'sandbox_failed', at),
      ];
    case 'rollback':
      return [
        failure,
        fact('RestoreFailed', { at, checkpointId: operation.checkpointId, message }),
      ];
    case 'move':
      return [failure, fact('MoveFailed', { at, message })];
    default:
      return [failure];
  }
}

export function lost(
  report: ReportNamed<'SandboxLost'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  return lossOf(fromCurrent(report, session), log, evidenceOf(report), report.at);
}

const lossOf = (
  session: Living,
  log: LogState,
  evidence: LossEvidence,
  at: number,
): SessionEvent[] => [...loss(session, log, evidence, at), ...abandoned(session, 'loss', at)];

/** A runner knows by a probe or by another instance; anything else is for the session to decide. */
function evidenceOf({ data: { evidence } }: ReportNamed<'SandboxLost'>) {
  if (evidence.kind === 'probe' || evidence.kind === 'different_instance') return evidence;
  throw new Refusal('out_of_order', 'unreachable is not lost: probe it', { kind: evidence.kind });
}

/** Said once of a sandbox. */
export function lifetimeKnown(
  report: ReportNamed<'LifetimeKnown'>,
  session: Session,
): SessionEvent[] {
  const { current } = fromCurrent(report, session);
  const { at, epoch, data } = report;
  return current.endsAt !== null ? [] : [fact('LifetimeKnown', { at, epoch, ...data })];
}

/** Also of a sandbox of the past, whose destruction was owed; otherwise it is no news. */
export function released(
  report: ReportNamed<'SandboxReleased'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  const { at, epoch, instance } = report;
  const fate = fact('SandboxReleased', { at, epoch, instance });
  if (exists(session) && session.current?.epoch !== epoch) {
    const debt = session.retired.find((each) => each.epoch === epoch);
    if (!debt && epoch > session.lastEpoch) throw stale(report, session);
    if (!debt || (debt.instance !== null && debt.instance !== instance)) return [];
    sentBy(report, debt.runnerId);
    return [fate];
  }
  const living = fromCurrent(report, session);
  if (living.status === 'stopping') return [fate, ...outcomesUnknown(living, log, 'stopped', at)];
  if (living.operation?.kind === 'release' && living.operation.taken)
    return [fate, ...outcomesUnknown(living, log, 'released', at)];
  throw new Refusal('out_of_order', 'nobody asked to destroy this sandbox: report it as lost', {
    epoch,
  });
}

/** The consequence of having a runner is the request itself. */
export const place = (_: CommandNamed<'PlaceSandbox'>, __: Session): SessionEvent[] => [];

export function declareLost(
  { at, data }: CommandNamed<'DeclareLost'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  if (!isLiving(session)) return [];
  const { epoch, evidence } = data;
  if (evidence.kind === 'unreachable') expectLongEnough(session, evidence.since, at);
  if (session.current?.epoch === epoch) {
    const closed = log.epoch === epoch && log.closed;
    return evidence.kind === 'log_closed' && !closed ? [] : lossOf(session, log, evidence, at);
  }
  const { pending } = session;
  if (pending?.epoch !== epoch || evidence.kind === 'log_closed') return [];
  return failedStart({ ...session, pending }, 'its runner cannot be reached', UNREACHABLE, at);
}

function expectLongEnough(session: Living, since: number, at: number): void {
  const { lostAfterMs } = session.spec.policy;
  if (lostAfterMs === null || at - since < lostAfterMs)
    throw new Refusal('too_early', 'unreachable is not lost: the policy says how long to wait', {
      lostAfterMs,
      since,
    });
}

/** Only within a pool: elsewhere a runner that is silent has its sandbox with it. */
export function reassign(
  { at, data }: CommandNamed<'ReassignRunner'>,
  session: Session,
): SessionEvent[] {
  if (!isLiving(session)) return [];
  const { current } = session;
  const { epoch, instance, to, since } = data;
  if (current?.epoch !== epoch || current.instance !== instance) return [];
  if (current.runnerId === to.runnerId) return [];
  if (current.pool === undefined || current.pool !== to.pool || current.provider !== to.provider)
    throw new Refusal('not_supported', `${to.runnerId} has not this sandbox in its reach`, {
      runnerId: to.runnerId,
    });
  if (at - since < REASSIGN_AFTER_MS)
    throw new Refusal('too_early', 'its runner may only be busy: wait for it', { since });
  return [fact('RunnerReassigned', { at, epoch, from: current.runnerId, to: to.runnerId })];
}
