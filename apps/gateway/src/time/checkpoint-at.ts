import { Refusal } from '@vmux/events';
import type { SessionView } from '../application/session-view';

/** The last checkpoint of what the files were then: it holds nothing of what came after that revision. */
export function checkpointAt(view: SessionView, revision: number): string {
  const { id: sessionId, checkpoints, restores, lineage } = view;
  const began = restores.findLast((each) => each.revision <= revision);
  const since = began?.revision ?? -1;
  const taken = [...checkpoints.values()].findLast(
    ({ takenRevision: at }) => at !== null && at > since && at <= revision,
  );
  const found = taken?.id ?? began?.checkpointId ?? lineage?.checkpoint.checkpointId;
  if (found !== undefined) return found;
  throw new Refusal('checkpoint_not_found', `no checkpoint was taken before revision ${revision}`, {
    sessionId,
    revision,
  });
}
