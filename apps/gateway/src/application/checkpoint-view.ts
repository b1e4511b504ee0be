import type { Checkpoint, Lineage, SessionEvent } from '@vmux/events';

export interface CheckpointView {
  readonly id: string;
  readonly status: 'requested' | 'taken' | 'failed';
  readonly name: string | null;
  readonly at: number;
  readonly checkpoint: Checkpoint | null;
  /** Of the request: what has ended before is in it. */
  readonly revision: number;
  /** Nothing that was issued after it is in it. */
  readonly takenRevision: number | null;
  readonly message: string | null;
}

/** The files went back to what they were at a checkpoint, in the sandbox of that epoch. */
export interface Restore {
  readonly revision: number;
  readonly epoch: number;
  readonly checkpointId: string;
  /** Asked for as such: what was done since the checkpoint is not wanted back. */
  readonly isRollback: boolean;
}

/** As much of a session as its checkpoints change. */
export interface HasCheckpoints {
  readonly revision: number;
  readonly lineage: Lineage | null;
  readonly checkpoints: Map<string, CheckpointView>;
  /** The one that a restore takes that names none: the last taken, or what the files went back to since. */
  lastCheckpoint: string | null;
  restores: readonly Restore[];
}

/** As many as the session remembers checkpoints. */
const MAX_RESTORES = 512;

export function applyCheckpoint(view: HasCheckpoints, event: SessionEvent): void {
  switch (event.type) {
    case 'SessionCreated':
      view.lastCheckpoint = event.data.lineage?.checkpoint.checkpointId ?? null;
      return;
    case 'CheckpointRequested': {
      const { checkpointId, name, at } = event.data;
      set(view, checkpointId, { status: 'requested', name, at });
      return;
    }
    case 'CheckpointTaken': {
      const { checkpoint, at } = event.data;
      const { checkpointId } = checkpoint;
      // The name is the request's: a runner need not know it.
      const name = checkpoint.name ?? view.checkpoints.get(checkpointId)?.name ?? null;
      const takenRevision = view.revision;
      set(view, checkpointId, { status: 'taken', name, at, checkpoint, takenRevision });
      view.lastCheckpoint = checkpointId;
      return;
    }
    case 'CheckpointFailed': {
      const { checkpointId, message, at } = event.data;
      set(view, checkpointId, { status: 'failed', at, message });
      return;
    }
    case 'CheckpointArchived': {
      const { checkpointId, at: _, ...portable } = event.data;
      const known = view.checkpoints.get(checkpointId);
      if (!known?.checkpoint) return;
      set(view, checkpointId, { checkpoint: { ...known.checkpoint, ...portable } });
      return;
    }
    case 'SandboxStarted': {
      const { restored, epoch } = event.data;
      if (!restored) return;
      const { checkpointId } = restored;
      if (knows(view, checkpointId)) view.lastCheckpoint = checkpointId;
      const restore = { revision: view.revision, epoch, checkpointId, isRollback: false };
      view.restores = [...view.restores, restore].slice(-MAX_RESTORES);
      return;
    }
    case 'RolledBack':
      view.restores = view.restores.map((restore) =>
        restore.epoch === event.data.epoch ? { ...restore, isRollback: true } : restore,
      );
      return;
  }
}

const set = (
  { checkpoints, revision }: HasCheckpoints,
  id: string,
  change: Partial<CheckpointView>,
): void => {
  const nothing = { name: null, at: 0, checkpoint: null, takenRevision: null, message: null };
  const before = checkpoints.get(id) ?? { id, status: 'requested', revision, ...nothing };
  checkpoints.set(id, { ...before, ...change });
};

const knows = ({ checkpoints, lineage }: HasCheckpoints, id: string): boolean =>
  checkpoints.get(id)?.status === 'taken' || lineage?.checkpoint.checkpointId === id;

/** Where in the history a checkpoint stands; before all of it what the session began with. */
export const standsAt = ({ checkpoints }: Pick<HasCheckpoints, 'checkpoints'>, id: string | null) =>
  (id === null ? undefined : checkpoints.get(id))?.revision ?? -1;

/** Whether what was issued then still stands, or a rollback has undone it. */
export function isUndone(
  view: Pick<HasCheckpoints, 'checkpoints' | 'restores'>,
  issued: { readonly revision: number; readonly epoch: number | null },
  upTo = Number.POSITIVE_INFINITY,
): boolean {
  if (issued.revision > upTo) return true;
  const last = view.restores.findLast((each) => each.isRollback && each.revision <= upTo);
  // What was asked for while it went back was done afterwards.
  if (!last || issued.revision > last.revision || (issued.epoch ?? 0) >= last.epoch) return false;
  return isUndone(view, issued, standsAt(view, last.checkpointId));
}
