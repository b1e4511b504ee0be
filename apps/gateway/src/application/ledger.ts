import { type ExecSpec, MAX_REPLAY, type Outcome } from '@vmux/events';
import { isUndone, standsAt } from './checkpoint-view';
import type { ExecView } from './exec-view';
import type { ExecWaiting } from './exec-waiting';
import type { SessionView } from './session-view';

export interface Rerun {
  readonly execId: string;
  readonly spec: ExecSpec;
  readonly outcome: Outcome;
}

/** What is sent of them. What cannot be is said too: a request that is repeated is answered all the same. */
export interface Reruns {
  readonly replay: readonly Rerun[];
  readonly whyNoReplay?: string;
}

/** Of all of them, in the message that asks for it. */
const MAX_BYTES = 512 * 1024;
const READS_AT_ONCE = 32;

/** What ran in a session, to be run again after its files went back in time. */
export class Ledger {
  constructor(private readonly execs: Pick<ExecWaiting, 'specOf'>) {}

  /**
   * In order; since the last checkpoint when none is named. Services start again by themselves, and what a
   * rollback undid stays undone. Nothing else is left out: of more than can be run again there is one too
   * many, which is refused where it is decided.
   */
  async since(view: SessionView, checkpointId: string | null): Promise<Reruns> {
    const from = standsAt(view, checkpointId ?? view.lastCheckpoint);
    const stands = ({ issuedRevision: revision, epoch }: ExecView) =>
      !isUndone(view, { revision, epoch });
    const owed = [...view.execs.values()]
      .filter((exec) => exec.issuedRevision > from && ranToItsEnd(exec) && stands(exec))
      .slice(0, MAX_REPLAY + 1);
    const replay: Rerun[] = [];
    for (let at = 0; at < owed.length; at += READS_AT_ONCE) {
      const some = owed.slice(at, at + READS_AT_ONCE);
      const read = await Promise.all(some.map((exec) => this.read(view.id, exec)));
      const lost = some[read.indexOf(null)];
      if (lost) return none(`the command of ${lost.id} is no longer in the history`);
      replay.push(...read.filter((each) => each !== null));
    }
    if (Buffer.byteLength(JSON.stringify(replay)) > MAX_BYTES)
      return none('the commands that ran since the checkpoint are too long to be run again as one');
    return { replay };
  }

  private async read(sessionId: string, exec: ExecView): Promise<Rerun | null> {
    const spec = await this.execs.specOf(sessionId, exec);
    return spec && exec.outcome && { execId: exec.id, spec, outcome: exec.outcome };
  }
}

const none = (why: string): Reruns => ({
  replay: [],
  whyNoReplay: `${why}: name a later checkpoint, or rehydrate without a replay`,
});

const ranToItsEnd = ({ outcome, purpose }: ExecView): boolean =>
  purpose === 'user' && outcome !== null && outcome.kind !== 'not_started';
