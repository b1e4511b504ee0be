import { fact, type LossEvidence, type SessionEvent } from '@vmux/events';
import { outcomesUnknown } from './fences';
import type { LogState } from './log-state';
import type { Current, Living } from './state';

type LivingWith<C> = Living & { readonly current: C };

/** The sandbox is gone, and with it the outcome of whatever ran in it. */
export function loss(
  session: Living,
  log: LogState,
  evidence: LossEvidence,
  at: number,
): SessionEvent[] {
  const { current } = session;
  if (!current) return [];
  const { epoch, instance } = current;
  return [
    fact('SandboxLost', { at, epoch, instance, evidence }),
    ...outcomesUnknown({ ...session, current } as LivingWith<Current>, log, 'sandbox_lost', at),
  ];
}

const BECAUSE = {
  loss: 'the sandbox was lost',
  given_up: 'the sandbox was given up',
  stop: 'the session was stopped',
};

/** How the request that is underway ends; a restore into the next sandbox survives a mere loss. */
export function abandoned(session: Living, why: keyof typeof BECAUSE, at: number): SessionEvent[] {
  const { operation } = session;
  const message = BECAUSE[why];
  switch (operation?.kind) {
    case 'checkpoint':
      return [fact('CheckpointFailed', { at, checkpointId: operation.checkpointId, message })];
    case 'release':
      if (operation.taken) return [];
      return [fact('CheckpointFailed', { at, checkpointId: operation.checkpointId, message })];
    case 'move':
      if (operation.taken) return why === 'loss' ? [] : [fact('MoveFailed', { at, message })];
      return [
        fact('CheckpointFailed', { at, checkpointId: operation.checkpointId, message }),
        fact('MoveFailed', { at, message }),
      ];
    case 'rollback':
    case 'rehydrate':
      if (why === 'loss') return [];
      return [fact('RestoreFailed', { at, checkpointId: operation.checkpointId, message })];
    default:
      return [];
  }
}
