import {
  type CommandNamed,
  fact,
  type Outcome,
  Refusal,
  type ReportNamed,
  type SessionEvent,
  type Sizes,
} from '@vmux/events';
import { fromCurrent, livingSession } from './fences';
import { type LogState, sizesIn } from './log-state';
import { isSettingUp, waitsForSetup } from './setup';
import {
  acceptsWork,
  canDo,
  endedExec,
  type Living,
  MAX_OPEN_EXECS,
  type OpenExec,
  openExecs,
  type Session,
} from './state';

const MAX_PENDING_SIGNALS = 32;

export function issue(
  { sessionId, owner, at, data }: CommandNamed<'IssueExec'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { execId, spec } = data;
  mayWork(living);
  if (openExec(living, execId) || hasEnded(living, execId))
    throw new Refusal('id_taken', `${execId} exists: issue it under another id`, { execId });
  if (openExecs(living).length >= MAX_OPEN_EXECS)
    throw new Refusal('too_many', `${MAX_OPEN_EXECS} execs are open: wait for some to end`, {
      max: MAX_OPEN_EXECS,
    });
  if (spec.pty && living.current && !canDo(living.current, 'pty'))
    throw new Refusal('not_supported', `${living.provider} has no terminals: run it without one`, {
      provider: living.provider,
      capability: 'pty',
    });
  const held = waitsForSetup(spec) && (isSettingUp(living) || living.setupFailed !== null);
  const epoch = acceptsWork(living) && !held ? living.current.epoch : null;
  return [fact('ExecIssued', { at, execId, epoch, spec, follows: null })];
}

function mayWork(session: Living): void {
  const { sessionId, status } = session;
  if (status === 'stopping')
    throw new Refusal('session_ended', `${sessionId} is stopping: create another session`, {
      sessionId,
      status,
    });
  const { rehydrate } = session.spec.policy;
  if (status === 'lost' && !session.operation && rehydrate === 'never')
    throw new Refusal('not_running', `the sandbox was lost: rehydrate ${sessionId} first`, {
      sessionId,
      status,
    });
}

/** An exec that was never dispatched ends here and now: it has never run. */
export function cancel(
  { sessionId, owner, at, data }: CommandNamed<'CancelExec'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { execId, graceMs } = data;
  if (hasEnded(living, execId)) return [];
  const exec = openExec(living, execId) ?? noExec(execId);
  if (exec.cancel && exec.cancel.graceMs <= graceMs) return [];
  const request = fact('ExecCancelRequested', { at, execId, cause: 'request', graceMs });
  return exec.epoch === null ? [request, withdrawn(execId, at)] : [request];
}

const withdrawn = (execId: string, at: number): SessionEvent =>
  fact('ExecExited', {
    at,
    execId,
    epoch: null,
    outcome: { kind: 'not_started', reason: 'cancelled', message: null },
    sizes: { stdout: 0, stderr: 0, pty: 0 },
    usage: null,
  });

export function signal(
  { sessionId, owner, at, data }: CommandNamed<'SignalExec'>,
  session: Session,
): SessionEvent[] {
  const living = livingSession(session, sessionId, owner);
  const { execId, signalId } = data;
  if (hasEnded(living, execId)) throw new Refusal('exec_ended', `${execId} has ended`, { execId });
  const exec = openExec(living, execId) ?? noExec(execId);
  if (exec.epoch === null)
    throw new Refusal('not_running', `${execId} waits for a sandbox: cancel it instead`, {
      execId,
    });
  if (exec.signals.some((each) => each.signalId === signalId)) return [];
  if (exec.signals.length >= MAX_PENDING_SIGNALS)
    throw new Refusal(
      'too_many',
      `${MAX_PENDING_SIGNALS} signals wait to be delivered: slow down`,
      {
        max: MAX_PENDING_SIGNALS,
      },
    );
  return [fact('ExecSignalRequested', { at, ...data })];
}

export function started(report: ReportNamed<'ExecStarted'>, session: Session): SessionEvent[] {
  const living = fromCurrent(report, session);
  const { at, epoch, data } = report;
  if (hasEnded(living, data.execId)) return [];
  const exec = dispatched(living, data.execId, epoch);
  return exec.startedAt === null ? [fact('ExecStarted', { at, epoch, ...data })] : [];
}

/** The outcome stands only next to all of its output. */
export function exited(
  report: ReportNamed<'ExecExited'>,
  session: Session,
  log: LogState,
): SessionEvent[] {
  const living = fromCurrent(report, session);
  const { at, epoch, data } = report;
  if (hasEnded(living, data.execId)) return [];
  const { spec } = dispatched(living, data.execId, epoch);
  const sizes = sizesIn(log, data.execId);
  expectAll(data.execId, data.sizes, sizes);
  const exit = fact('ExecExited', { at, epoch, ...data, sizes });
  return spec.purpose === 'setup' && isSuccess(data.outcome)
    ? [exit, fact('StageReached', { at, epoch, stage: 'installed', execId: null })]
    : [exit];
}

const isSuccess = (outcome: Outcome): boolean => outcome.kind === 'exited' && outcome.code === 0;

export function signalled(report: ReportNamed<'ExecSignalled'>, session: Session): SessionEvent[] {
  const { at, data } = report;
  const exec = openExec(fromCurrent(report, session), data.execId);
  const waits = exec?.signals.some(({ signalId }) => signalId === data.signalId);
  return waits ? [fact('ExecSignalled', { at, ...data })] : [];
}

function expectAll(execId: string, reported: Sizes, inLog: Sizes): void {
  const missing = (['stdout', 'stderr', 'pty'] as const).find((s) => inLog[s] < reported[s]);
  if (missing)
    throw new Refusal(
      'log_behind',
      `send ${missing} of ${execId} from ${inLog[missing]} on first`,
      {
        execId,
        stream: missing,
        expected: inLog[missing],
        reported: reported[missing],
      },
    );
}

function dispatched(session: Living, execId: string, epoch: number): OpenExec {
  const exec = openExec(session, execId) ?? noExec(execId);
  if (exec.epoch !== epoch)
    throw new Refusal('out_of_order', `${execId} was not dispatched to this sandbox`, { execId });
  return exec;
}

const openExec = (session: Living, execId: string): OpenExec | undefined =>
  Object.hasOwn(session.execs, execId) ? session.execs[execId] : undefined;

const hasEnded = (session: Living, execId: string): boolean =>
  endedExec(session, execId) !== undefined;

const noExec = (execId: string): never => {
  throw new Refusal('exec_not_found', `there is no exec ${execId} here, or it ended long ago`, {
    execId,
  });
};
