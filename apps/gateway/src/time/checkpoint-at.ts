import { Refusal } from '@vmux/events';
import type { SessionView } from '../application/session-view';

/** The last checkpoint that holds nothing of what came after that revision. */
export function checkpointAt({ id, checkpoints, lineage }: SessionView, revision: number): string {
  const before = [...checkpoints.values()].filter(
    (each) => each.status === 'taken' && each.revision <= revision,
  );
  const last = before.reduce<(typeof before)[number] | null>(
    (a, b) => (a && a.revision > b.revision ? a : b),
    null,
  );
  const found = last?.id ?? lineage?.checkpoint.checkpointId;
  if (found !== undefined) return found;
  throw new Refusal('checkpoint_not_found', `no checkpoint was taken before revision ${revision}`, {
    sessionId: id,
    revision,
  });
}
