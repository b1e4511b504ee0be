import { createHash } from 'node:crypto';
import { openExecs, type Session } from '../src/domain/state';

/** The facts of a state that every later version has to find in the same history. */
export function summaryOf(session: Session): object {
  if (session.status === 'unborn') return { status: 'unborn' };
  if (session.status === 'deleted') {
    const { status, revision, sessionId, owner, createdBy } = session;
    return { status, revision, sessionId, owner, createdBy };
  }
  const { status, revision, sessionId, owner, name, provider, createdAt, lastEpoch } = session;
  const { current, pending, operation } = session;
  return {
    ...{ status, revision, sessionId, owner, name, provider, createdAt, lastEpoch },
    current: current && {
      epoch: current.epoch,
      instance: current.instance,
      runnerId: current.runnerId,
      frozen: current.frozen,
    },
    pending: pending && { epoch: pending.epoch, runnerId: pending.runnerId },
    operation: operation?.kind ?? null,
    retired: session.retired.map(({ epoch, runnerId }) => ({ epoch, runnerId })),
    execs: openExecs(session).map(({ execId, epoch, startedAt, cancel }) => ({
      execId,
      epoch,
      startedAt,
      cancelled: cancel !== null,
    })),
    ended: [...session.ended.older, ...session.ended.newer],
    openPorts: Object.values(session.ports)
      .filter(({ open }) => open)
      .map(({ port }) => port),
    checkpoints: session.checkpoints.map(({ checkpointId }) => checkpointId),
    forks: session.forks.map(({ forkId, missing }) => ({ forkId, missing })),
    shares: session.shares.map(({ shareId }) => shareId),
    lastActivityAt: session.lastActivityAt,
  };
}

export const digestOf = (summary: object): string =>
  createHash('sha256').update(JSON.stringify(summary)).digest('hex');
