import {
  type CommandNamed,
  fact,
  MAX_REPLAY,
  Refusal,
  type Report,
  type ReportNamed,
  type SessionEvent,
} from '@vmux/events';
import { neverStarted, rehydration } from './consequences';
import { abandoned, loss } from './endings';
import { fromCurrent, livingSession, noCheckpoint, nothingUnderway, notRunning } from './fences';
import type { LogState } from './log-state';
import { canDo, checkpointOf, type Living, lastCheckpoint, type Session } from './state';

export function suspend(
  { sessionId, owner, at }: CommandNamed<'SuspendSession'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const already = living.status === 'suspended' ? !living.operation : false;
  if (already || living.operation?.kind === 'suspend') return [];
  nothingUnderway(living);
  if (living.status !== 'running') throw notRunning(living);
  if (!canDo(living.current, 'suspend'))
    throw new Refusal('not_supported', `${living.provider} cannot suspend: stop or checkpoint it`, {
      provider: living.provider,
      capability: 'suspend',
    });
  return [fact('SuspendRequested', { at, epoch: living.current.epoch, cause: 'request' })];
}

export function suspended(
  report: ReportNamed<'SandboxSuspended'>,
  session: Session,
): SessionEvent[] {
  const { at, epoch, data } = report;
  const living = fromCurrent(report, session);
  if (answers(living, 'suspend', data.request)) return [fact('SandboxSuspended', { at, epoch })];
  if (living.status === 'running' && living.operation?.kind !== 'suspend')
    throw overtaken('it was resumed since: let it go on', report);
  return [];
}

export function suspendFailed(
  report: ReportNamed<'SuspendFailed'>,
  session: Session,
): SessionEvent[] {
  const { at, epoch, data } = report;
  const awaited = answers(fromCurrent(report, session), 'suspend', data.request);
  return awaited ? [fact('SuspendFailed', { at, epoch, message: data.message })] : [];
}

export function resume(
  { sessionId, owner, at }: CommandNamed<'ResumeSession'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const kind = living.operation?.kind;
  if (kind === 'resume' || kind === 'rehydrate' || kind === 'create') return [];
  if (standsStill(living)) return givenUp(living, at);
  nothingUnderway(living);
  if (living.status === 'suspended')
    return [fact('ResumeRequested', { at, epoch: living.current.epoch, cause: 'request' })];
  return living.status === 'lost' || living.status === 'released'
    ? [rehydration(living, 'request', at)]
    : [];
}

/** A move that waits for its sandbox, perhaps for a GPU: the source could go on meanwhile. */
const standsStill = ({ operation, current }: Living): boolean =>
  operation?.kind === 'move' && operation.taken && current !== null;

function givenUp({ pending }: Living, at: number): SessionEvent[] {
  const message = 'the move was given up';
  const fate = { retryable: false, mayRemain: true };
  return [
    ...(pending ? [fact('SandboxFailed', { at, epoch: pending.epoch, message, ...fate })] : []),
    fact('MoveFailed', { at, message }),
  ];
}

export function resumed(report: ReportNamed<'SandboxResumed'>, session: Session): SessionEvent[] {
  const { at, epoch, data } = report;
  const living = fromCurrent(report, session);
  const awaited = answers(living, 'resume', data.request) || answers(living, 'thaw', data.request);
  if (awaited) return [fact('SandboxResumed', { at, epoch })];
  if (living.status === 'suspended' && !living.operation)
    throw overtaken('it was suspended since: let it rest', report);
  return [];
}

/** A late order was carried out by a runner that could not know better; whoever gets this undoes it. */
const overtaken = (message: string, { epoch }: Report): Refusal =>
  new Refusal('out_of_order', message, { epoch });

/** A frozen source that does not thaw is asked again: it has not gone anywhere. */
export function resumeFailed(
  report: ReportNamed<'ResumeFailed'>,
  session: Session,
): SessionEvent[] {
  const { at, epoch, data } = report;
  const living = fromCurrent(report, session);
  if (!answers(living, 'resume', data.request)) return [];
  return [
    fact('ResumeFailed', { at, epoch, message: data.message }),
    ...neverStarted(living, 'sandbox_failed', at),
  ];
}

const answers = (
  { operation }: Living,
  kind: 'suspend' | 'resume' | 'thaw',
  request: number,
): boolean => operation?.kind === kind && 'request' in operation && operation.request === request;

export function rehydrate(
  { sessionId, owner, at, principal, data }: CommandNamed<'RehydrateSession'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { checkpointId, provider, allowBaseChange, force, replay, whyNoReplay } = data;
  const from = checkpointId ?? lastCheckpoint(living)?.checkpointId ?? null;
  if (from !== null && !checkpointOf(living, from)) throw noCheckpoint(from);
  if (replay.length > MAX_REPLAY)
    throw new Refusal(
      'checkpoint_unusable',
      `more than ${MAX_REPLAY} commands ran since the checkpoint, which cannot be run again as one: name a later checkpoint, or rehydrate without a replay`,
      { sessionId, maxCommands: MAX_REPLAY },
    );
  if (whyNoReplay !== undefined)
    throw new Refusal('checkpoint_unusable', whyNoReplay, { sessionId });
  const request = [
    fact('RehydrateRequested', {
      at,
      checkpointId: from,
      provider: provider ?? living.provider,
      allowBaseChange,
      cause: force ? 'force' : 'request',
    }),
    ...(replay.length > 0 ? [fact('ReplayRequested', { at, items: replay })] : []),
  ];
  if (force && living.current && living.status !== 'stopping')
    return [
      ...loss(living, log, { kind: 'decision', by: principal }, at),
      ...abandoned(living, 'given_up', at),
      ...request,
    ];
  nothingUnderway(living);
  if (living.current)
    throw new Refusal('session_live', `${sessionId} has a sandbox: force if it cannot be reached`, {
      sessionId,
      status: living.status,
    });
  return request;
}
