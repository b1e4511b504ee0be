import type { Checkpoint } from '@vmux/events';
import { active, type Effects } from './effects';
import { type Existing, MAX_CHECKPOINTS, MAX_UNARCHIVED, type Operation } from './state';

export const checkpointEffects: Effects<
  | 'CheckpointRequested'
  | 'CheckpointTaken'
  | 'CheckpointFailed'
  | 'CheckpointArchived'
  | 'ArchiveFailed'
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

  CheckpointTaken: (before, { checkpoint, at }) => {
    const { operation, current } = before;
    const owed = isUnstored(checkpoint) ? [checkpoint.checkpointId] : [];
    const session = {
      ...before,
      checkpoints: [...before.checkpoints, checkpoint].slice(-MAX_CHECKPOINTS),
      unarchived: [...before.unarchived, ...owed].slice(-MAX_UNARCHIVED),
    };
    if (operation?.kind === 'checkpoint') return { ...session, operation: null };
    if (!current || (operation?.kind !== 'release' && operation?.kind !== 'move')) return session;
    return {
      ...session,
      current: { ...current, frozen: true },
      operation: { ...operation, taken: true, ...(operation.kind === 'move' ? { since: at } : {}) },
    } as Existing;
  },

  CheckpointFailed: (session, { checkpointId, at }) => {
    const forks = session.forks.filter((fork) => fork.checkpointId !== checkpointId);
    const kind = session.operation?.kind;
    if (kind === 'checkpoint') return { ...session, forks, operation: null };
    if (kind === 'release') return { ...active(session, at), forks, operation: null };
    return { ...session, forks };
  },

  CheckpointArchived: (session, { at, checkpointId, ...portable }) => ({
    ...archived(session, checkpointId),
    operation: movingOn(session.operation, at),
    checkpoints: session.checkpoints.map((each) =>
      each.checkpointId === checkpointId ? { ...each, ...portable } : each,
    ),
  }),
  ArchiveFailed: (session, { checkpointId, at }) => ({
    ...archived(session, checkpointId),
    operation: movingOn(session.operation, at),
  }),

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

  MoveRequested: (session, { provider, checkpointId, allowBaseChange, at }) => ({
    ...session,
    operation: {
      kind: 'move',
      provider,
      checkpointId,
      allowBaseChange,
      taken: false,
      starts: 0,
      since: at,
    },
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

/** In its provider's form alone: the portable one is owed, to a child that began with it as well. */
export const isUnstored = ({ artifact, native }: Checkpoint): boolean =>
  artifact === null && native !== null;

/** Nothing more is owed for its portable form. */
const archived = (session: Existing, checkpointId: string): Existing => ({
  ...session,
  unarchived: session.unarchived.filter((each) => each !== checkpointId),
});

const movingOn = (operation: Operation | null, at: number): Operation | null =>
  operation?.kind === 'move' ? { ...operation, since: at } : operation;
