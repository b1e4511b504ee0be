import { type CommandNamed, fact, type SessionEvent } from '@vmux/events';
import { deadlinesOf } from './deadlines';
import { abandoned } from './endings';
import { canDo, type Living, type Running, type Session } from './state';

type Fire = CommandNamed<'FireDeadline'>;

const TIMEOUT_GRACE_MS = 5_000;

/** A deadline that is not due any more, or is not due yet, changes nothing. */
export function fire(command: Fire, session: Session): SessionEvent[] {
  const { kind, execId } = command.data;
  const due = deadlinesOf(session).some(
    (each) => each.kind === kind && each.execId === execId && each.at <= command.at,
  );
  return due ? reached(command, session as Running) : [];
}

function reached(command: Fire, session: Running): SessionEvent[] {
  const { at, data } = command;
  switch (data.kind) {
    case 'idle':
    case 'keep':
      return rest(session, data.kind, data.checkpointId, at);
    case 'max_runtime':
      return [
        fact('StopRequested', {
          at,
          cause: 'max_runtime',
          graceMs: session.spec.policy.stopGraceMs,
          thenDelete: false,
        }),
        ...abandoned(session, 'stop', at),
      ];
    case 'runtime_warning':
      return [runtimeWarning(session, at)];
    case 'exec_timeout':
      return data.execId === null ? [] : [timeout(data.execId, at)];
    case 'checkpoint':
      return [checkpoint(session, data.checkpointId, 'policy', at)];
    case 'unplaced':
      return [fact('MoveFailed', { at, message: 'no runner took it in time' })];
    case 'provider_limit':
      return release(session, data.kind, data.checkpointId, at);
  }
}

/** Suspended where the provider can; otherwise given back after a checkpoint. */
function rest(
  session: Running,
  cause: 'idle' | 'keep',
  checkpointId: string,
  at: number,
): SessionEvent[] {
  const { epoch } = session.current;
  if (canDo(session.current, 'suspend')) return [fact('SuspendRequested', { at, epoch, cause })];
  return release(session, cause, checkpointId, at);
}

const release = (
  session: Running,
  cause: 'idle' | 'keep' | 'provider_limit',
  checkpointId: string,
  at: number,
): SessionEvent[] => [
  fact('ReleaseRequested', { at, epoch: session.current.epoch, checkpointId, cause }),
  checkpoint(session, checkpointId, 'release', at),
];

const checkpoint = (
  { current }: Running,
  checkpointId: string,
  cause: 'policy' | 'release',
  at: number,
): SessionEvent =>
  fact('CheckpointRequested', {
    at,
    checkpointId,
    epoch: current.epoch,
    name: null,
    cause,
    hold: cause === 'release',
  });

const timeout = (execId: string, at: number): SessionEvent =>
  fact('ExecCancelRequested', { at, execId, cause: 'timeout', graceMs: TIMEOUT_GRACE_MS });

const runtimeWarning = ({ firstStartedAt, spec }: Living, at: number): SessionEvent =>
  fact('LimitExceeded', {
    at,
    limit: 'runtime',
    level: 'warning',
    value: at - (firstStartedAt ?? at),
    max: spec.policy.maxRuntimeMs ?? 0,
    execId: null,
  });
