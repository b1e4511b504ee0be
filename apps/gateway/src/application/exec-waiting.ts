import type { EventStore } from '@vmux/event-store';
import { decode, type Recorded, Refusal, sessionStream } from '@vmux/events';
import { timeLimit } from '@vmux/messaging';
import { collectOutput } from './exec-output';
import { type ExecView, execHasEnded } from './exec-view';
import type { LogReader } from './log-reader';
import type { SessionReader } from './session-reader';

export const MAX_WAIT_MS = 600_000;

/** Waits for execs and shows what came of them. */
export class ExecWaiting {
  constructor(
    private readonly store: EventStore,
    private readonly sessions: SessionReader,
    private readonly logs: LogReader,
  ) {}

  /** Once it has ended, or as it is when the time is up or nobody waits any more. */
  async wait(
    sessionId: string,
    execId: string,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<ExecView> {
    const limit = timeLimit(Math.min(waitMs, MAX_WAIT_MS));
    const ended = await this.sessions.waitForLasting(
      sessionId,
      ({ execs, status }) => {
        const exec = execs.get(execId);
        return (exec && execHasEnded(exec)) || status === 'deleted' ? (exec ?? null) : undefined;
      },
      AbortSignal.any([limit, signal]),
    );
    const exec = ended ?? (await this.sessions.read(sessionId))?.execs.get(execId);
    if (!exec) throw new Refusal('exec_not_found', 'the exec is gone', { sessionId, execId });
    return exec;
  }

  output(sessionId: string, exec: ExecView, maxBytes: number, signal: AbortSignal) {
    return collectOutput(this.logs, sessionId, exec, maxBytes, signal);
  }

  /** As it was issued: the view keeps only a summary. */
  async specOf(sessionId: string, { issuedRevision, id }: ExecView) {
    const recorded = await this.eventAt(sessionId, issuedRevision);
    if (recorded?.event.type !== 'ExecIssued' || recorded.event.data.execId !== id) return null;
    return recorded.event.data.spec;
  }

  private async eventAt(sessionId: string, revision: number): Promise<Recorded | null> {
    const options = { from: revision, limit: 1 };
    for await (const stored of this.store.read(sessionStream(sessionId), options))
      return decode(stored);
    return null;
  }
}
