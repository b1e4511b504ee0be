import { deriveExecId, fact, type Outcome, type SessionEvent } from '@vmux/events';
import type { Living, Replay, Running } from './state';

/** It goes on only for as long as each ends as it did before. */
export function replayEnd({ replay }: Living, at: number): SessionEvent | null {
  if (!replay?.last?.ended) return null;
  const { execId, item, outcome } = replay.last;
  const expected = item.outcome;
  if (isSame(outcome, expected)) return null;
  return fact('ReplayStopped', { at, execId, follows: item.execId, expected, outcome });
}

/** One exec after the other. */
export function replayStep(session: Running, replay: Replay, at: number): readonly SessionEvent[] {
  const { last, left, done } = replay;
  if (last && !last.ended) return [];
  const [next] = left;
  if (!next) return [fact('ReplayFinished', { at, count: done })];
  const { epoch } = session.current;
  return [
    fact('ExecIssued', {
      at,
      execId: deriveExecId(session.sessionId, 'replay', String(epoch), String(done)),
      epoch,
      spec: { ...next.spec, purpose: 'replay', service: null },
      follows: next.execId,
    }),
  ];
}

const isSame = (outcome: Outcome | null, expected: Outcome): boolean => {
  if (outcome?.kind === 'exited')
    return expected.kind === 'exited' && outcome.code === expected.code;
  if (outcome?.kind === 'signalled')
    return expected.kind === 'signalled' && outcome.signal === expected.signal;
  return false;
};
