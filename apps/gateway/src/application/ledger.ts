import type { ExecSpec, Outcome } from '@vmux/events';
import type { ExecView } from './exec-view';
import type { ExecWaiting } from './exec-waiting';
import type { SessionView } from './session-view';

export interface Rerun {
  readonly execId: string;
  readonly spec: ExecSpec;
  readonly outcome: Outcome;
}

const MAX_RERUNS = 100;

/** What ran in a session, to be run again after its files went back in time. */
export class Ledger {
  constructor(private readonly execs: Pick<ExecWaiting, 'specOf'>) {}

  /** In order; the last checkpoint when none is named. Services start again by themselves. */
  async since(view: SessionView, checkpointId: string | null): Promise<readonly Rerun[]> {
    const from = revisionOf(view, checkpointId);
    const reruns: Rerun[] = [];
    for (const exec of view.execs.values()) {
      if (exec.issuedRevision <= from || !ranToItsEnd(exec)) continue;
      if (reruns.length === MAX_RERUNS) break;
      const spec = await this.execs.specOf(view.id, exec);
      if (spec && exec.outcome) reruns.push({ execId: exec.id, spec, outcome: exec.outcome });
    }
    return reruns;
  }
}

const ranToItsEnd = ({ outcome, purpose }: ExecView): boolean =>
  purpose === 'user' && outcome !== null && outcome.kind !== 'not_started';

function revisionOf({ checkpoints }: SessionView, checkpointId: string | null): number {
  const taken = [...checkpoints.values()].filter(({ status }) => status === 'taken');
  const chosen = checkpointId === null ? taken.at(-1) : taken.find(({ id }) => id === checkpointId);
  return chosen?.revision ?? -1;
}
