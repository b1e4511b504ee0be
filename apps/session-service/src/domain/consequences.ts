import { deriveExecId, fact, type Placement, type SessionEvent } from '@vmux/events';
import { foreseen } from './evolve';
import { replayEnd, replayStep } from './replay';
import { isSettingUp, untold } from './setup';
import {
  checkpointOf,
  exists,
  isLiving,
  isReady,
  type Living,
  lastCheckpoint,
  mustBeArchivedFirst,
  type Operation,
  queuedExecs,
  type Resting,
  type Running,
  type Session,
} from './state';

interface Circumstances {
  readonly at: number;
  /** The runner that a new sandbox may go to. */
  readonly placement: Placement | null;
}

/** Facts that follow from other facts at once stand in the same append. */
export function withConsequences(
  session: Session,
  events: readonly SessionEvent[],
  given: Circumstances,
): readonly SessionEvent[] {
  const more = consequencesOf(foreseen(session, events), given);
  return more.length === 0 ? events : withConsequences(session, [...events, ...more], given);
}

function consequencesOf(session: Session, given: Circumstances): readonly SessionEvent[] {
  if (!exists(session)) return [];
  if (!isLiving(session)) return session.stop?.thenDelete ? [deletion(session, given.at)] : [];
  if (session.status === 'stopping') return session.current ? [] : stopped(session, given.at);
  const next = replayEnd(session, given.at) ?? sandboxRequest(session, given);
  if (next) return [next];
  if (isReady(session)) return startOfWork(session, given.at);
  return session.operation ? [] : waking(session, given.at);
}

export const deletion = (
  session: {
    readonly sessionId: string;
    readonly owner: string;
    readonly createdBy: string | null;
  },
  at: number,
): SessionEvent =>
  fact('SessionDeleted', {
    at,
    sessionId: session.sessionId,
    owner: session.owner,
    createdBy: session.createdBy,
  });

const stopped = (session: Living, at: number): SessionEvent[] => [
  ...neverStarted(session, 'session_stopped', at),
  fact('SessionStopped', { at, cause: session.stop?.cause ?? 'request' }),
];

/** Queued execs that will not be dispatched any more. */
export const neverStarted = (
  session: Living,
  reason: 'session_stopped' | 'session_failed' | 'sandbox_failed',
  at: number,
): SessionEvent[] =>
  queuedExecs(session).map(({ execId }) =>
    fact('ExecExited', {
      at,
      execId,
      epoch: null,
      outcome: { kind: 'not_started', reason, message: null },
      sizes: { stdout: 0, stderr: 0, pty: 0 },
      usage: null,
    }),
  );

/** Queued execs go to the sandbox, and services that fell with the last one are started again. */
const startOfWork = (session: Running, at: number): readonly SessionEvent[] => {
  const { epoch } = session.current;
  if (isSettingUp(session)) return [];
  if (session.replay) return replayStep(session, session.replay, at);
  const told = untold(session, at);
  if (told.length > 0) return told;
  return [
    ...queuedExecs(session).map(({ execId }) => fact('ExecDispatched', { at, execId, epoch })),
    ...session.fallenServices.map(({ execId, spec }) =>
      fact('ExecIssued', {
        at,
        execId: deriveExecId(session.sessionId, 'restart', execId, String(epoch)),
        epoch,
        spec,
        follows: execId,
      }),
    ),
  ];
};

/** Work waits and no sandbox can take it. */
function waking(session: Living, at: number): SessionEvent[] {
  if (session.wakeFailed) return [];
  const waits = queuedExecs(session).length > 0;
  if (session.status === 'suspended' && waits)
    return [fact('ResumeRequested', { at, epoch: session.current.epoch, cause: 'exec' })];
  if (session.status !== 'lost' && session.status !== 'released') return [];
  const { rehydrate } = session.spec.policy;
  if (session.status === 'lost' && rehydrate === 'immediately')
    return [rehydration(session, 'policy', at)];
  if (!waits || (session.status === 'lost' && rehydrate === 'never')) return [];
  return [rehydration(session, 'exec', at)];
}

export const rehydration = (
  session: Resting,
  cause: 'request' | 'exec' | 'attach' | 'preview' | 'policy',
  at: number,
): SessionEvent =>
  fact('RehydrateRequested', {
    at,
    checkpointId: lastCheckpoint(session)?.checkpointId ?? null,
    provider: session.provider,
    allowBaseChange: false,
    cause,
  });

/** What is wanted of a runner that is still to be found; null when no sandbox is owed. */
export interface Wanted {
  readonly provider: string;
  readonly operation: Extract<Operation, { readonly starts: number }>;
}

export function wantedSandbox(session: Living): Wanted | null {
  const { operation, pending } = session;
  if (session.status === 'stopping' || pending || !operation || !('starts' in operation))
    return null;
  if (operation.kind === 'move' && !operation.taken) return null;
  const provider = operation.kind === 'create' ? session.provider : operation.provider;
  const from = operation.kind === 'create' ? null : operation.checkpointId;
  const checkpoint = from === null ? undefined : checkpointOf(session, from);
  if (checkpoint && mustBeArchivedFirst(session, checkpoint, provider)) return null;
  return { provider, operation };
}

function sandboxRequest(session: Living, given: Circumstances): SessionEvent | null {
  const wanted = wantedSandbox(session);
  if (!wanted) return null;
  const { operation } = wanted;
  const place =
    operation.kind === 'rollback' && session.current ? session.current : given.placement;
  if (place?.provider !== wanted.provider) return null;
  const from =
    operation.kind === 'create' ? session.lineage?.checkpoint.checkpointId : operation.checkpointId;
  return fact('SandboxRequested', {
    at: given.at,
    epoch: session.lastEpoch + 1,
    runnerId: place.runnerId,
    provider: place.provider,
    capabilities: place.capabilities,
    ...(place.pool === undefined ? {} : { pool: place.pool }),
    purpose: operation.kind,
    restore: from ? (checkpointOf(session, from) ?? null) : null,
    allowBaseChange: operation.kind === 'create' ? false : operation.allowBaseChange,
  });
}
