import { type Checkpoint, type OrderType, orderIdOf, type SealedOrder } from '@vmux/events';
import { wantedSandbox } from './consequences';
import { type Deadline, deadlinesOf } from './deadlines';
import {
  type Current,
  checkpointOf,
  dispatchedTo,
  type Existing,
  exists,
  isLiving,
  type Living,
  mustBeArchivedFirst,
  type OpenExec,
  type Pending,
  type Session,
} from './state';

/** What is still owed, read from the state alone: after a crash it is the same again. */
export interface Owed {
  readonly orders: readonly SealedOrder[];
  /** A sandbox for which a runner has to be found: `PlaceSandbox`. */
  readonly place: { readonly provider: string } | null;
  /** Deadlines that have passed: `FireDeadline`. */
  readonly deadlines: readonly Deadline[];
  /** Children to be created, each followed by `RecordFork`. */
  readonly forks: readonly OwedFork[];
  /** When to look again if nothing happens before. */
  readonly nextAt: number | null;
}

export interface OwedFork {
  readonly forkId: string;
  readonly index: number;
  readonly name: string;
  readonly provider: string;
  readonly checkpoint: Checkpoint;
}

const NOTHING: Owed = { orders: [], place: null, deadlines: [], forks: [], nextAt: null };

export function react(session: Session, now: number): Owed {
  if (!exists(session)) return NOTHING;
  const deadlines = deadlinesOf(session);
  const later = deadlines.filter(({ at }) => at > now).map(({ at }) => at);
  const wanted = isLiving(session) ? wantedSandbox(session) : null;
  return {
    orders: ordersOwed(session),
    place: wanted && { provider: wanted.provider },
    deadlines: deadlines.filter(({ at }) => at <= now),
    forks: forksOwed(session),
    nextAt: later.length > 0 ? Math.min(...later) : null,
  };
}

function ordersOwed(session: Existing): readonly SealedOrder[] {
  const destroyed = session.retired.map((sandbox) =>
    order(session, sandbox, 'DestroySandbox', null, { graceMs: 0, drain: false }),
  );
  const archived = session.unarchived.flatMap((each) => archiving(session, each));
  if (!isLiving(session)) return [...destroyed, ...archived];
  const { current, pending } = session;
  return [
    ...destroyed,
    ...(pending ? [creation(session, pending)] : []),
    ...(current ? ordersForCurrent(session, current) : []),
    ...archived,
  ];
}

/** To the runner that has it in its own form. */
function archiving(session: Existing, checkpointId: string): SealedOrder[] {
  const checkpoint = checkpointOf(session, checkpointId);
  if (!checkpoint?.native) return [];
  const { runnerId } = checkpoint.native;
  const target = { epoch: checkpoint.epoch, instance: null, runnerId };
  return [order(session, target, 'ArchiveCheckpoint', checkpointId, { checkpoint })];
}

const creation = (session: Living, pending: Pending): SealedOrder =>
  order(session, { ...pending, instance: null }, 'CreateSandbox', null, {
    provider: pending.provider,
    image: session.spec.image,
    spec: session.spec,
    env: session.spec.env ? [session.spec.env] : [],
    restore: pending.restore,
    allowBaseChange: pending.allowBaseChange,
    owner: session.owner,
  });

function ordersForCurrent(session: Living, current: Current): SealedOrder[] {
  // Whoever has not taken it over yet would say that it is not there, or that it is destroyed.
  if (current.adopting) {
    const { provider, base } = current;
    return [order(session, current, 'AdoptSandbox', null, { provider, base })];
  }
  if (session.status === 'stopping') {
    const { graceMs } = session.stop;
    return [order(session, current, 'DestroySandbox', null, { graceMs, drain: true })];
  }
  const asleep = session.status === 'suspended' || current.frozen;
  const work = asleep
    ? []
    : dispatchedTo(session, current.epoch).flatMap((exec) => execOrders(session, current, exec));
  return [...operationOrders(session, current), ...work];
}

function operationOrders(session: Living, current: Current): SealedOrder[] {
  const { operation } = session;
  switch (operation?.kind) {
    case 'suspend':
      return [
        order(session, current, 'SuspendSandbox', String(operation.request), {
          request: operation.request,
        }),
      ];
    case 'resume':
    case 'thaw':
      return [
        order(session, current, 'ResumeSandbox', String(operation.request), {
          request: operation.request,
        }),
      ];
    case 'checkpoint':
      return [checkpointOrder(session, current, operation.checkpointId, false)];
    case 'release':
      return operation.taken
        ? [order(session, current, 'DestroySandbox', null, { graceMs: 0, drain: true })]
        : [checkpointOrder(session, current, operation.checkpointId, true)];
    case 'move':
      return operation.taken
        ? []
        : [checkpointOrder(session, current, operation.checkpointId, true)];
    default:
      return [];
  }
}

const checkpointOrder = (
  session: Living,
  current: Current,
  checkpointId: string,
  hold: boolean,
): SealedOrder => order(session, current, 'TakeCheckpoint', checkpointId, { checkpointId, hold });

/** A cancelled exec is not started any more: cancelling what was never seen keeps it from running. */
function execOrders(session: Living, current: Current, exec: OpenExec): SealedOrder[] {
  const { execId, spec, cancel, signals, startedAt } = exec;
  if (cancel)
    return [
      order(session, current, 'CancelExec', `${execId}:${cancel.graceMs}`, {
        execId,
        graceMs: cancel.graceMs,
      }),
    ];
  const env = [session.spec.env, spec.env].filter((each) => each !== null);
  const { cwd, user } = session.spec;
  const inside = { ...spec, cwd: spec.cwd ?? cwd, user: spec.user ?? user };
  const start = order(session, current, 'StartExec', execId, { execId, spec: inside, env });
  return [
    ...(startedAt === null ? [start] : []),
    ...signals.map(({ signalId, signal }) =>
      order(session, current, 'SignalExec', signalId, { execId, signalId, signal }),
    ),
  ];
}

function forksOwed(session: Existing): readonly OwedFork[] {
  return session.forks.flatMap(({ forkId, checkpointId, name, provider, missing }) => {
    const checkpoint = checkpointOf(session, checkpointId);
    if (!checkpoint || mustBeArchivedFirst(session, checkpoint, provider)) return [];
    return missing.map((index) => ({ forkId, index, name, provider, checkpoint }));
  });
}

interface Target {
  readonly epoch: number;
  readonly instance: string | null;
  readonly runnerId: string;
}

const order = <T extends OrderType>(
  { sessionId }: Existing,
  { epoch, instance, runnerId }: Target,
  type: T,
  target: string | null,
  data: Extract<SealedOrder, { readonly type: T }>['data'],
): SealedOrder =>
  ({
    type,
    orderId: orderIdOf(type, sessionId, epoch, target),
    runnerId,
    sessionId,
    epoch,
    instance,
    data,
  }) as SealedOrder;
