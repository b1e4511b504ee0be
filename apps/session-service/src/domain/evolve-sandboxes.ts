import type { Checkpoint, LossEvidence } from '@vmux/events';
import { type Effects, retire } from './effects';
import type { Current, Existing, Operation } from './state';

export const sandboxEffects: Effects<
  | 'SandboxRequested'
  | 'SandboxStarted'
  | 'SandboxFailed'
  | 'SandboxLost'
  | 'SandboxReleased'
  | 'LifetimeKnown'
  | 'RunnerReassigned'
  | 'SandboxAdopted'
  | 'SuspendRequested'
  | 'SandboxSuspended'
  | 'SuspendFailed'
  | 'ResumeRequested'
  | 'SandboxResumed'
  | 'ResumeFailed'
  | 'ReleaseRequested'
  | 'RehydrateRequested'
  | 'ReplayRequested'
  | 'ReplayFinished'
  | 'ReplayStopped'
  | 'RestoreFailed'
> = {
  SandboxRequested: (session, { at: _, ...pending }) => ({
    ...session,
    lastEpoch: Math.max(session.lastEpoch, pending.epoch),
    pending,
    operation: startedOnce(session.operation),
  }),

  SandboxStarted: (session, { epoch, instance, runnerId, base, restored, at }) => {
    const { pending } = session;
    if (pending?.epoch !== epoch) return session;
    const { provider, capabilities, pool } = pending;
    const kind = session.operation?.kind;
    return {
      ...(session.current ? retire(session, session.current) : session),
      status: 'running',
      current: {
        epoch,
        instance,
        runnerId,
        provider,
        capabilities,
        ...(pool === undefined ? {} : { pool }),
        base,
        startedAt: at,
        frozen: false,
        adopting: false,
        endsAt: null,
      },
      pending: null,
      operation: kind === 'create' || kind === 'rehydrate' ? null : session.operation,
      provider,
      checkpoints: descendedFrom(session.checkpoints, restored?.checkpointId),
      wakeFailed: false,
      setupFailed: null,
      ports: {},
      noted: {},
      firstStartedAt: session.firstStartedAt ?? at,
      lastActivityAt: Math.max(session.lastActivityAt, at),
    };
  },

  SandboxFailed: (session, { epoch, mayRemain }) => {
    const { pending } = session;
    if (pending?.epoch !== epoch) return session;
    const left = mayRemain ? retire(session, { ...pending, instance: null }) : session;
    return { ...left, pending: null };
  },

  SandboxLost: (session, { epoch, evidence }) => {
    const { current } = session;
    if (current?.epoch !== epoch) return session;
    const left = mayStillRun(evidence) ? retire(session, current) : session;
    const emptied = { ...left, current: null, ports: {}, noted: {} };
    if (emptied.status === 'stopping' && session.stop)
      return { ...emptied, status: 'stopping', stop: session.stop };
    return { ...emptied, status: 'lost', operation: survivingLoss(session.operation) };
  },

  SandboxReleased: (session, { epoch }) => {
    if (session.current?.epoch !== epoch)
      return { ...session, retired: session.retired.filter((each) => each.epoch !== epoch) };
    const emptied = { ...session, current: null, operation: null, ports: {}, noted: {} };
    if (session.stop) return { ...emptied, status: 'stopping', stop: session.stop };
    return { ...emptied, status: 'released' };
  },

  LifetimeKnown: (session, { epoch, endsAt }) => withCurrent(session, epoch, { endsAt }),
  RunnerReassigned: (session, { epoch, to }) =>
    withCurrent(session, epoch, { runnerId: to, adopting: true }),
  SandboxAdopted: (session, { epoch }) => withCurrent(session, epoch, { adopting: false }),

  SuspendRequested: (session, _, request) => ({
    ...session,
    operation: { kind: 'suspend', request },
  }),
  SandboxSuspended: (session) => {
    const { current } = session;
    return current ? { ...session, status: 'suspended', current, operation: null } : session;
  },
  SuspendFailed: (session, { at }) => ({
    ...session,
    operation: null,
    lastActivityAt: Math.max(session.lastActivityAt, at),
  }),

  ResumeRequested: (session, { cause }, request) => ({
    ...session,
    wakeFailed: false,
    operation: { kind: 'resume', request, cause },
  }),
  SandboxResumed: (session, { at }) => {
    const { current } = session;
    if (!current) return session;
    return {
      ...session,
      status: 'running',
      current: { ...current, frozen: false },
      operation: null,
      wakeFailed: false,
      lastActivityAt: Math.max(session.lastActivityAt, at),
    };
  },
  ResumeFailed: (session) => ({ ...session, operation: null, wakeFailed: true }),

  ReleaseRequested: (session, { checkpointId }) => ({
    ...session,
    operation: { kind: 'release', checkpointId, taken: false },
  }),

  RehydrateRequested: (session, { checkpointId, provider, allowBaseChange }) => ({
    ...(session.pending ? retire(session, { ...session.pending, instance: null }) : session),
    pending: null,
    wakeFailed: false,
    operation: { kind: 'rehydrate', checkpointId, provider, allowBaseChange, starts: 0 },
  }),
  ReplayRequested: (session, { items }) => ({
    ...session,
    replay: { left: items, done: 0, last: null },
  }),
  ReplayFinished: (session) => ({ ...session, replay: null }),
  ReplayStopped: (session) => ({ ...session, replay: null }),

  RestoreFailed: (session) => {
    const kind = session.operation?.kind;
    if (kind !== 'rehydrate' && kind !== 'rollback') return session;
    const wakeFailed = session.current === null;
    return { ...session, pending: null, operation: null, replay: null, wakeFailed };
  },
};

/** The last checkpoint is the one that the files of the current sandbox come from. */
const descendedFrom = (
  checkpoints: readonly Checkpoint[],
  checkpointId: string | undefined,
): readonly Checkpoint[] => {
  const origin = checkpoints.filter((each) => each.checkpointId === checkpointId);
  return [...checkpoints.filter((each) => each.checkpointId !== checkpointId), ...origin];
};

const mayStillRun = (evidence: LossEvidence): boolean =>
  evidence.kind !== 'probe' && evidence.kind !== 'different_instance';

const startedOnce = (operation: Operation | null): Operation | null =>
  operation && 'starts' in operation ? { ...operation, starts: operation.starts + 1 } : operation;

/** What goes on without the sandbox that was lost: a restore into the next one. */
const survivingLoss = (operation: Operation | null): Operation | null => {
  if (operation?.kind === 'rollback' || operation?.kind === 'rehydrate') return operation;
  return operation?.kind === 'move' && operation.taken ? operation : null;
};

const withCurrent = (
  session: Existing,
  epoch: number,
  change: Partial<Pick<Current, 'runnerId' | 'adopting' | 'endsAt'>>,
): Existing =>
  session.current?.epoch === epoch
    ? ({ ...session, current: { ...session.current, ...change } } as Existing)
    : session;
