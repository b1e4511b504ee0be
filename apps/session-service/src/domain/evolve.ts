import type { Recorded, SessionEvent, SessionEventData, SessionEventType } from '@vmux/events';
import type { Effect, Effects } from './effects';
import { checkpointEffects, isUnstored } from './evolve-checkpoints';
import { execEffects } from './evolve-execs';
import { sandboxEffects } from './evolve-sandboxes';
import { sessionEffects } from './evolve-sessions';
import { NO_KEYS, remember } from './key-memory';
import { type Existing, exists, type Session, UNBORN } from './state';

const effects: Effects<Exclude<SessionEventType, 'SessionCreated' | 'SessionDeleted'>> = {
  ...sessionEffects,
  ...sandboxEffects,
  ...execEffects,
  ...checkpointEffects,
};

/** Never throws: what happened, happened. An event that means nothing here only moves the revision. */
export function evolve(session: Session, { event, revision, metadata }: Recorded): Session {
  if (event.type === 'SessionDeleted') return deleted(event.data, revision);
  if (event.type === 'SessionCreated') {
    if (session.status !== 'unborn') return moved(session, revision);
    return remembering(born(event.data, revision, metadata.key ?? null));
  }
  if (!exists(session)) return moved(session, revision);
  const effect = effects[event.type] as Effect<SessionEventType>;
  return remembering({ ...effect(session, event.data, revision), revision });

  function remembering(next: Existing): Existing {
    const { key, digest } = metadata;
    if (key === undefined || digest === undefined) return next;
    return { ...next, keys: remember(next.keys, key, digest, revision, event.data.at) };
  }
}

export const fold = (history: Iterable<Recorded>, from: Session = UNBORN): Session => {
  let session = from;
  for (const recorded of history) session = evolve(session, recorded);
  return session;
};

/** What the state would be with these events appended to it. */
export const foreseen = (session: Session, events: readonly SessionEvent[]): Session =>
  fold(
    events.map((event, index) => ({
      event,
      revision: session.revision + 1 + index,
      metadata: { principal: 'system', correlationId: 'none', version: event.version },
    })),
    session,
  );

const moved = (session: Session, revision: number): Session =>
  session.status === 'unborn' ? session : { ...session, revision };

const deleted = (data: SessionEventData<'SessionDeleted'>, revision: number): Session => ({
  status: 'deleted',
  revision,
  sessionId: data.sessionId,
  owner: data.owner,
  createdBy: data.createdBy,
});

const born = (
  data: SessionEventData<'SessionCreated'>,
  revision: number,
  createdBy: string | null,
): Existing => ({
  status: 'starting',
  revision,
  sessionId: data.sessionId,
  owner: data.owner,
  name: data.name,
  provider: data.provider,
  spec: data.spec,
  lineage: data.lineage,
  createdAt: data.at,
  createdBy,
  keys: NO_KEYS,
  lastEpoch: 0,
  current: null,
  pending: null,
  operation: { kind: 'create', starts: 0 },
  replay: null,
  retired: [],
  wakeFailed: false,
  stop: null,
  execs: {},
  ended: { older: [], newer: [] },
  fallenServices: [],
  ports: {},
  access: {},
  noted: {},
  checkpoints: data.lineage ? [data.lineage.checkpoint] : [],
  unarchived:
    data.lineage && isUnstored(data.lineage.checkpoint)
      ? [data.lineage.checkpoint.checkpointId]
      : [],
  forks: [],
  shares: [],
  lastActivityAt: data.at,
  firstStartedAt: null,
  lastCheckpointAt: data.at,
  warnedOfRuntime: false,
  setupFailed: null,
});
