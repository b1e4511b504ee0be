import type { Recorded, SessionEvent, SessionEventType } from '@vmux/events';

export type History = readonly Recorded[];

/** What one history shows that must not be. `what` names everything that it follows from. */
export interface Breach {
  readonly law: string;
  readonly what: string;
}

export type Law = (history: History) => readonly Breach[];

/** Epochs only grow, and a sandbox that was asked for from a checkpoint is that checkpoint's. */
export const epochsFence: Law = (history) => {
  const law = '6 epochs fence';
  const breaches: Breach[] = [];
  let requested: SessionEvent | null = null;
  let [lastRequested, lastStarted] = [0, 0];
  for (const { event } of history) {
    if (event.type === 'SandboxRequested') {
      const { epoch } = event.data;
      if (epoch <= lastRequested)
        breaches.push({ law, what: `epoch ${epoch} was asked for after ${lastRequested}` });
      lastRequested = epoch;
      requested = event;
    }
    if (event.type === 'SandboxStarted') {
      const { epoch, restored } = event.data;
      if (epoch <= lastStarted)
        breaches.push({ law, what: `epoch ${epoch} started after ${lastStarted}` });
      lastStarted = epoch;
      const wanted =
        requested?.type === 'SandboxRequested' && requested.data.epoch === epoch
          ? requested.data
          : null;
      if (!wanted) {
        breaches.push({ law, what: `epoch ${epoch} started and was not asked for last` });
        continue;
      }
      const [is, must] = [restored?.manifestDigest, wanted.restore?.manifestDigest];
      if (restored?.checkpointId !== wanted.restore?.checkpointId || is !== must)
        breaches.push({
          law,
          what: `epoch ${epoch} began with ${restored?.checkpointId} ${is}, not with ${wanted.restore?.checkpointId} ${must}`,
        });
    }
  }
  return breaches;
};

type Ends = Readonly<Partial<Record<SessionEventType, readonly SessionEventType[]>>>;

/** What ends each request that changes the sandbox, one way or the other. */
const ENDS: Ends = {
  SuspendRequested: ['SandboxSuspended', 'SuspendFailed', 'SandboxLost'],
  ResumeRequested: ['SandboxResumed', 'ResumeFailed', 'SandboxLost'],
  RehydrateRequested: ['SandboxStarted', 'RestoreFailed'],
  RollbackRequested: ['RolledBack', 'RestoreFailed'],
  MoveRequested: ['Moved', 'MoveFailed'],
  ReleaseRequested: ['SandboxReleased', 'CheckpointFailed', 'SandboxLost'],
};
const STOPS: readonly SessionEventType[] = [
  'StopRequested',
  'SessionStopped',
  'SessionFailed',
  'SessionDeleted',
];

/** Every request comes to its end, one after the other; nothing is under way for ever. */
export const requestsEnd: Law = (history) => {
  const law = '7 converges';
  const breaches: Breach[] = [];
  let open: Recorded | null = null;
  const checkpoints = new Map<string, number>();
  /** By those that a stop has overtaken: they fail with it, or were taken before they heard. */
  const overtaken = new Set<string>();
  const forks = new Map<string, { left: number; checkpointId: string; revision: number }>();
  const isAsked = (id: string) => checkpoints.delete(id) || overtaken.delete(id);
  for (const recorded of history) {
    const { event, revision } = recorded;
    if (STOPS.includes(event.type)) {
      open = null;
      for (const id of checkpoints.keys()) overtaken.add(id);
      checkpoints.clear();
    }
    if (open && ENDS[open.event.type]?.includes(event.type)) open = null;
    else if (event.type in ENDS) {
      if (open)
        breaches.push({
          law,
          what: `${event.type} at ${revision} while ${open.event.type} of ${open.revision} was under way`,
        });
      open = recorded;
    }
    switch (event.type) {
      case 'CheckpointRequested':
        if (checkpoints.has(event.data.checkpointId))
          breaches.push({ law, what: `${event.data.checkpointId} was asked for twice` });
        checkpoints.set(event.data.checkpointId, revision);
        break;
      case 'CheckpointTaken':
        if (!isAsked(event.data.checkpoint.checkpointId))
          breaches.push({
            law,
            what: `${event.data.checkpoint.checkpointId} was taken and not asked for`,
          });
        break;
      case 'CheckpointFailed':
        if (!isAsked(event.data.checkpointId))
          breaches.push({ law, what: `${event.data.checkpointId} failed and was not asked for` });
        for (const [forkId, fork] of forks)
          if (fork.checkpointId === event.data.checkpointId) forks.delete(forkId);
        break;
      case 'ForkRequested':
        forks.set(event.data.forkId, {
          left: event.data.count,
          checkpointId: event.data.checkpointId,
          revision,
        });
        break;
      case 'Forked': {
        const fork = forks.get(event.data.forkId);
        if (!fork || fork.left === 0) {
          breaches.push({ law, what: `${event.data.child} is one fork too many` });
          break;
        }
        fork.left -= 1;
        if (fork.left === 0) forks.delete(event.data.forkId);
        break;
      }
    }
  }
  if (open)
    breaches.push({ law, what: `${open.event.type} of ${open.revision} never came to an end` });
  for (const [id, revision] of checkpoints)
    breaches.push({ law, what: `the checkpoint ${id} of ${revision} never came to an end` });
  for (const [id, { left, revision }] of forks)
    breaches.push({ law, what: `the fork ${id} of ${revision} lacks ${left} children` });
  return breaches;
};

/** An exec starts once and ends once; unknown only with the sandbox that it was in, and for its reason. */
export const execsOnce: Law = (history) => {
  const breaches: Breach[] = [];
  const started = new Set<string>();
  const ended = new Set<string>();
  for (const [index, { event }] of history.entries()) {
    if (event.type === 'ExecStarted') {
      const { execId } = event.data;
      if (started.has(execId)) breaches.push({ law: '3 once', what: `${execId} started twice` });
      started.add(execId);
    }
    if (event.type !== 'ExecExited' && event.type !== 'ExecOutcomeUnknown') continue;
    const { execId } = event.data;
    if (ended.has(execId))
      breaches.push({ law: '5 no invented outcomes', what: `${execId} ended twice` });
    ended.add(execId);
    if (event.type === 'ExecExited') continue;
    const { reason, epoch } = event.data;
    if (!hasReason(history, index, reason, epoch))
      breaches.push({
        law: '5 no invented outcomes',
        what: `${execId} of epoch ${epoch} is unknown (${reason}), and nothing of the kind happened`,
      });
  }
  return breaches;
};

/** The fact that makes it unknown stands beside it, in the same append. */
function hasReason(history: History, index: number, reason: string, epoch: number): boolean {
  const cause: Partial<Record<string, SessionEventType>> = {
    sandbox_lost: 'SandboxLost',
    released: 'SandboxReleased',
    stopped: 'SandboxReleased',
    rolled_back: 'SandboxStarted',
    moved: 'SandboxStarted',
  };
  const isAfter = reason === 'rolled_back' || reason === 'moved';
  const beside = isAfter ? history.slice(index) : history.slice(0, index).reverse();
  const found = beside.find(({ event }) => event.type === cause[reason])?.event;
  if (!found || !('epoch' in found.data)) return false;
  return isAfter ? Number(found.data.epoch) > epoch : found.data.epoch === epoch;
}

/** No sandbox is given up that nobody harmed. */
export const nothingLost: Law = (history) =>
  history.flatMap(({ event }) =>
    event.type === 'SandboxLost'
      ? [
          {
            law: '6 epochs fence',
            what: `the sandbox of epoch ${event.data.epoch} was left alone and is lost: ${JSON.stringify(event.data.evidence)}`,
          },
        ]
      : [],
  );

/** As few of the events as still show the same breach of the same law. */
export function shortest<T extends Recorded>(
  history: readonly T[],
  law: (history: readonly T[]) => readonly Breach[],
  { what }: Breach,
): readonly T[] {
  const shows = (events: readonly T[]) => law(events).some((breach) => breach.what === what);
  if (!shows(history)) return history;
  let kept = history;
  for (
    let size = Math.ceil(kept.length / 2);
    size >= 1;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let at = 0; at < kept.length; ) {
      const without = [...kept.slice(0, at), ...kept.slice(at + size)];
      if (shows(without)) kept = without;
      else at += size;
    }
  }
  return kept;
}

export const inWords = ({ event, revision }: Recorded): string =>
  `${revision} ${event.type} ${JSON.stringify(event.data).slice(0, 240)}`;
