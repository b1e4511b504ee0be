import { wantedSandbox } from './consequences';
import { acceptsWork, canDo, isLiving, type Living, openExecs, type Session } from './state';

export type DeadlineKind =
  | 'idle'
  | 'keep'
  | 'max_runtime'
  | 'runtime_warning'
  | 'exec_timeout'
  | 'checkpoint'
  | 'provider_limit'
  | 'unplaced';

export interface Deadline {
  readonly kind: DeadlineKind;
  readonly execId: string | null;
  readonly at: number;
}

const WARNING_MS = 60_000;
/** How long before its provider ends it a sandbox is given back, and how long after a try the next one comes. */
const LIMIT_LEAD_MS = 300_000;
const LIMIT_RETRY_MS = 30_000;
/** How long a frozen source waits for a runner that takes it. */
const PLACED_WITHIN_MS = 60_000;
/** A session that has no idle timeout rests after its time is over and nobody was here for this long. */
const AFTER_KEEP_MS = 600_000;

/** Everything that is to happen by itself, and when, as far as the history says. */
export function deadlinesOf(session: Session): readonly Deadline[] {
  if (!isLiving(session) || session.status === 'stopping') return [];
  return [
    ...rest(session),
    ...endOfRuntime(session),
    ...endOfExecs(session),
    ...nextCheckpoint(session),
    ...endOfSandbox(session),
    ...endOfWaiting(session),
  ];
}

const deadline = (kind: DeadlineKind, at: number, execId: string | null = null): Deadline => ({
  kind,
  execId,
  at,
});

/** Idle means: nobody was here for a while, nothing that keeps it awake runs, and it is not kept. */
function rest(session: Living): Deadline[] {
  const { idleTimeoutMs, keepMs } = session.spec.policy;
  if (!acceptsWork(session) || session.operation || !canRest(session)) return [];
  if (openExecs(session).some(({ spec }) => spec.keepsAwake)) return [];
  const keptUntil = session.createdAt + (keepMs ?? 0);
  if (idleTimeoutMs !== null)
    return [deadline('idle', Math.max(session.lastActivityAt + idleTimeoutMs, keptUntil))];
  if (keepMs === null) return [];
  return [deadline('keep', Math.max(session.lastActivityAt + AFTER_KEEP_MS, keptUntil))];
}

const canRest = ({ current }: Living): boolean =>
  current !== null && (canDo(current, 'suspend') || canDo(current, 'checkpoint'));

function endOfRuntime({ spec, firstStartedAt, warnedOfRuntime }: Living): Deadline[] {
  const { maxRuntimeMs } = spec.policy;
  if (maxRuntimeMs === null || firstStartedAt === null) return [];
  const end = firstStartedAt + maxRuntimeMs;
  const warning = deadline('runtime_warning', end - Math.min(WARNING_MS, maxRuntimeMs / 10));
  return [deadline('max_runtime', end), ...(warnedOfRuntime ? [] : [warning])];
}

function endOfExecs(session: Living): Deadline[] {
  if (session.status !== 'running') return [];
  return openExecs(session).flatMap(({ execId, spec, startedAt, cancel }) =>
    spec.timeoutMs === null || startedAt === null || cancel
      ? []
      : [deadline('exec_timeout', startedAt + spec.timeoutMs, execId)],
  );
}

function nextCheckpoint(session: Living): Deadline[] {
  const { checkpointEveryMs } = session.spec.policy;
  if (checkpointEveryMs === null || !acceptsWork(session) || session.operation) return [];
  if (!canDo(session.current, 'checkpoint')) return [];
  return [deadline('checkpoint', session.lastCheckpointAt + checkpointEveryMs)];
}

/** Early enough for a checkpoint, and never in the first half of its life. */
function endOfSandbox(session: Living): Deadline[] {
  if (!acceptsWork(session) || session.operation) return [];
  const { endsAt, startedAt } = session.current;
  if (endsAt === null || !canDo(session.current, 'checkpoint')) return [];
  const leadMs = Math.min(LIMIT_LEAD_MS, (endsAt - startedAt) / 2);
  const tried = session.lastCheckpointAt > startedAt ? session.lastCheckpointAt : 0;
  return [deadline('provider_limit', Math.max(endsAt - leadMs, tried + LIMIT_RETRY_MS))];
}

/** A move that nobody takes is given up: its source goes on. */
function endOfWaiting(session: Living): Deadline[] {
  const { operation } = session;
  if (operation?.kind !== 'move' || !wantedSandbox(session)) return [];
  return [deadline('unplaced', operation.since + PLACED_WITHIN_MS)];
}
