import {
  type ClientCommand,
  type Command,
  type CommandNamed,
  type CommandType,
  Refusal,
  type Report,
  type ReportNamed,
  type ReportType,
  type SessionEvent,
  type SystemCommand,
} from '@vmux/events';
import { withConsequences } from './consequences';
import * as checkpoints from './decide-checkpoints';
import * as deadlines from './decide-deadlines';
import * as execs from './decide-execs';
import * as ports from './decide-ports';
import * as rest from './decide-rest';
import * as sandboxes from './decide-sandboxes';
import * as sessions from './decide-sessions';
import * as shares from './decide-shares';
import { MOST_KEYS, RESERVED_KEYS, recall, roomAt } from './key-memory';
import type { LogState } from './log-state';
import { exists, type Session } from './state';

type Decide<M> = (message: M, session: Session, log: LogState) => readonly SessionEvent[];

const commands: { readonly [T in CommandType]: Decide<CommandNamed<T>> } = {
  CreateSession: sessions.create,
  StopSession: sessions.stop,
  DeleteSession: sessions.remove,
  WakeSession: sessions.wake,
  NoteActivity: sessions.noteActivity,

  IssueExec: execs.issue,
  CancelExec: execs.cancel,
  SignalExec: execs.signal,

  SuspendSession: rest.suspend,
  ResumeSession: rest.resume,
  RehydrateSession: rest.rehydrate,
  PlaceSandbox: sandboxes.place,
  DeclareLost: sandboxes.declareLost,
  ReassignRunner: sandboxes.reassign,

  TakeCheckpoint: checkpoints.take,
  RollbackSession: checkpoints.rollback,
  MoveSession: checkpoints.move,
  ForkSession: checkpoints.fork,
  RecordFork: checkpoints.recordFork,

  GrantShare: shares.grant,
  RevokeShare: shares.revoke,
  SetPortAccess: ports.setAccess,

  FireDeadline: deadlines.fire,
};

const reports: { readonly [T in ReportType]: Decide<ReportNamed<T>> } = {
  SandboxReady: sandboxes.ready,
  SandboxFailed: sandboxes.failed,
  SandboxLost: sandboxes.lost,
  SandboxReleased: sandboxes.released,
  SandboxSuspended: rest.suspended,
  SuspendFailed: rest.suspendFailed,
  SandboxResumed: rest.resumed,
  ResumeFailed: rest.resumeFailed,

  ExecStarted: execs.started,
  ExecExited: execs.exited,
  ExecSignalled: execs.signalled,

  PortOpened: sessions.portOpened,
  PortClosed: sessions.portClosed,
  SetupDetected: sessions.setupDetected,
  StageReached: sessions.stageReached,
  LimitExceeded: sessions.limitExceeded,
  ActivityObserved: sessions.activityObserved,

  CheckpointTaken: checkpoints.taken,
  CheckpointFailed: checkpoints.failed,
  CheckpointArchived: checkpoints.archived,
  ArchiveFailed: checkpoints.archiveFailed,
  CheckpointsHeld: checkpoints.held,
  LifetimeKnown: sandboxes.lifetimeKnown,
};

/** What to append, or where the answer to the same request already stands. */
export type Decision =
  | { readonly kind: 'append'; readonly events: readonly SessionEvent[] }
  | { readonly kind: 'repeated'; readonly revision: number };

/**
 * Throws nothing but `Refusal`. Two codes are for the caller's own use: `log_open` asks to close the log of
 * an epoch first, and `log_behind` says which output the log has to have first.
 */
export function decideCommand(
  command: ClientCommand | SystemCommand,
  session: Session,
  log: LogState,
): Decision {
  const repeated = 'key' in command ? revisionUnder(command, session) : null;
  if (repeated !== null) return { kind: 'repeated', revision: repeated };
  if ('key' in command) expectRoomForKey(command, session);
  const decide = commands[command.type] as Decide<Command>;
  const events = decide(command, session, log);
  return { kind: 'append', events: withConsequences(session, events, command) };
}

export function decideReport(
  report: Report,
  session: Session,
  log: LogState,
): readonly SessionEvent[] {
  const decide = reports[report.type] as Decide<Report>;
  const events = decide(report, session, log);
  return withConsequences(session, events, { at: report.at, placement: null });
}

/** Once: the same key finds what it caused before; with another request it is refused. */
function revisionUnder({ key, digest, owner }: ClientCommand, session: Session): number | null {
  if (!exists(session) || session.owner !== owner) return null;
  const found = recall(session.keys, key, digest);
  if (found.kind === 'other')
    throw new Refusal('key_reused', 'this key was used for another request: take a new key', {});
  return found.kind === 'same' ? found.revision : null;
}

/** However many keys were used today, a session can be ended and what runs in it cancelled. */
const mostKeys: { readonly [T in CommandType]?: number } = {
  StopSession: Number.POSITIVE_INFINITY,
  DeleteSession: Number.POSITIVE_INFINITY,
  CancelExec: MOST_KEYS + RESERVED_KEYS,
  RevokeShare: MOST_KEYS + RESERVED_KEYS,
};

/** No key is forgotten within its day: rather nothing new is taken. */
function expectRoomForKey({ type, owner, at }: ClientCommand, session: Session): void {
  if (type === 'CreateSession' || !exists(session) || session.owner !== owner) return;
  const free = roomAt(session.keys, mostKeys[type] ?? MOST_KEYS, at);
  if (free === 0) return;
  throw new Refusal(
    'too_many_keys',
    `${session.sessionId} has taken ${MOST_KEYS} requests within a day: use another session too`,
    { max: MOST_KEYS, retryAfterMs: free - at },
  );
}
