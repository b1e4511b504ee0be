import { active, type Effects } from './effects';
import { type Existing, MAX_CHECKPOINTS } from './state';

export const checkpointEffects: Effects<
  | 'CheckpointRequested'
  | 'CheckpointTaken'
  | 'CheckpointFailed'
  | 'RollbackRequested'
  | 'RolledBack'
  | 'ForkRequested'
  | 'Forked'
  | 'MoveRequested'
  | 'Moved'
  | 'MoveFailed'
> = {
  CheckpointRequested: (session, { checkpointId, at }) => ({
    ...session,
    lastCheckpointAt: Math.max(session.lastCheckpointAt, at),
    operation: session.operation ?? { kind: 'checkpoint', checkpointId },
  }),

  CheckpointTaken: (session, { checkpoint }) => {
    const { operation, current } = session;
    const checkpoints = [...session.checkpoints, checkpoint].slice(-MAX_CHECKPOINTS);
    if (operation?.kind === 'checkpoint') return { ...session, checkpoints, operation: null };
    if (!current || (operation?.kind !== 'release' && operation?.kind !== 'move'))
      return { ...session, checkpoints };
    return {
      ...session,
      checkpoints,
      current: { ...current, frozen: true },
      operation: { ...operation, taken: true },
    } as Existing;
  },

  CheckpointFailed: (session, { checkpointId, at }) => {
    const forks = session.forks.filter((fork) => fork.checkpointId !== checkpointId);
    const kind = session.operation?.kind;
    if (kind === 'checkpoint') return { ...session, forks, operation: null };
    if (kind === 'release') return { ...active(session, at), forks, operation: null };
    return { ...session, forks };
  },

  RollbackRequested: (session, { checkpointId, allowBaseChange }) => ({
    ...session,
    operation: {
      kind: 'rollback',
      checkpointId,
      allowBaseChange,
      provider: session.provider,
      starts: 0,
    },
  }),
  RolledBack: (session) => ({ ...session, operation: null }),

  ForkRequested: (session, { forkId, checkpointId, name, count, provider }) => ({
    ...session,
    forks: [
      ...session.forks,
      {
        forkId,
        checkpointId,
        name,
        provider,
        missing: Array.from({ length: count }, (_, index) => index),
      },
    ],
  }),
  Forked: (session, { forkId, index }) => ({
    ...session,
    forks: session.forks
      .map((fork) =>
        fork.forkId === forkId
          ? { ...fork, missing: fork.missing.filter((each) => each !== index) }
          : fork,
      )
      .filter(({ missing }) => missing.length > 0),
  }),

  MoveRequested: (session, { provider, checkpointId, allowBaseChange }) => ({
    ...session,
    operation: { kind: 'move', provider, checkpointId, allowBaseChange, taken: false, starts: 0 },
  }),
  Moved: (session) => ({ ...session, operation: null }),
  MoveFailed: (session, _, request) =>
    session.operation?.kind === 'move'
      ? {
          ...session,
          pending: null,
          operation: session.current?.frozen ? { kind: 'thaw', request } : null,
        }
      : session,
};
