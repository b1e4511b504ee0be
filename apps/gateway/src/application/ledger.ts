import { type ExecSpec, MAX_REPLAY, type Outcome } from '@vmux/events';
import { ApiError } from '../http/api-error';
import type { ExecView } from './exec-view';
import type { ExecWaiting } from './exec-waiting';
import type { SessionView } from './session-view';

export interface Rerun {
  readonly execId: string;
  readonly spec: ExecSpec;
  readonly outcome: Outcome;
}

/** Of all of them, in the message that asks for it. */
const MAX_BYTES = 512 * 1024;
const READS_AT_ONCE = 32;

/** What ran in a session, to be run again after its files went back in time. */
export class Ledger {
  constructor(private readonly execs: Pick<ExecWaiting, 'specOf'>) {}

  /**
   * In order; since the last checkpoint when none is named. Services start again by themselves. Nothing is
   * left out: of more than can be run again there is one too many, which is refused where it is decided.
   */
  async since(view: SessionView, checkpointId: string | null): Promise<readonly Rerun[]> {
    const from = revisionOf(view, checkpointId);
    const owed = [...view.execs.values()]
      .filter((exec) => exec.issuedRevision > from && ranToItsEnd(exec))
      .slice(0, MAX_REPLAY + 1);
    const reruns: Rerun[] = [];
    for (let at = 0; at < owed.length; at += READS_AT_ONCE)
      reruns.push(...(await this.read(view.id, owed.slice(at, at + READS_AT_ONCE))));
    if (Buffer.byteLength(JSON.stringify(reruns)) > MAX_BYTES)
      throw new ApiError(
        'body_too_large',
        'the commands that ran since the checkpoint are too long to be run again as one',
        'name a later checkpoint, or rehydrate without a replay',
      );
    return reruns;
  }

  private read(sessionId: string, execs: readonly ExecView[]): Promise<Rerun[]> {
    return Promise.all(
      execs.map(async (exec) => {
        const spec = await this.execs.specOf(sessionId, exec);
        if (!spec || !exec.outcome)
          throw new ApiError(
            'checkpoint_unusable',
            `the command of ${exec.id} is no longer in the history`,
            'rehydrate without a replay',
            { execId: exec.id },
          );
        return { execId: exec.id, spec, outcome: exec.outcome };
      }),
    );
  }
}

const ranToItsEnd = ({ outcome, purpose }: ExecView): boolean =>
  purpose === 'user' && outcome !== null && outcome.kind !== 'not_started';

function revisionOf({ checkpoints }: SessionView, checkpointId: string | null): number {
  const taken = [...checkpoints.values()].filter(({ status }) => status === 'taken');
  const chosen = checkpointId === null ? taken.at(-1) : taken.find(({ id }) => id === checkpointId);
  return chosen?.revision ?? -1;
}
