import { checkpointId, execId, instanceId, runnerId, sessionId, signalId } from './ids';
import {
  flag,
  integer,
  list,
  nullable,
  oneOf,
  type Shape,
  type Shaped,
  struct,
  withOptional,
} from './shape';
import {
  base,
  checkpoint,
  clearEnv,
  epochNumber,
  execSpec,
  provider,
  sealedEnv,
  sessionSpec,
  signalName,
  text512,
} from './values';

/**
 * What a runner is told to do. Each order stands alone, says the same however often it is sent, and is
 * sent until the history shows it done. `Env` is sealed where orders are derived from the history and in
 * clear on the wire.
 */
const orderData = <Env>(env: Shape<Env>) => ({
  /** Answered by SandboxReady or SandboxFailed. */
  CreateSandbox: withOptional(
    struct({
      provider,
      image: nullable(text512),
      spec: sessionSpec,
      env,
      restore: nullable(checkpoint),
      allowBaseChange: flag,
    }),
    /** Whose it is: what is kept for one owner is not given to another. */
    { owner: text512 },
  ),
  /** The runner takes over a sandbox that another one started; answered by SandboxReady. */
  AdoptSandbox: struct({ provider, base: nullable(base) }),
  /** Answered by ExecStarted and ExecExited. */
  StartExec: struct({ execId, spec: execSpec, env }),
  /** TERM, then KILL after the grace; answered by ExecExited. */
  CancelExec: struct({ execId, graceMs: integer(0) }),
  /** Answered by ExecSignalled; repeats with the same signal id are not delivered again. */
  SignalExec: struct({ execId, signalId, signal: signalName }),
  /** Answered by SandboxReleased, once all output is acknowledged; `drain: false` throws output away. */
  DestroySandbox: struct({ graceMs: integer(0), drain: flag }),
  /** Answered by SandboxSuspended or SuspendFailed. */
  SuspendSandbox: struct({ request: integer(0) }),
  /** Also thaws what a checkpoint held; answered by SandboxResumed or ResumeFailed. */
  ResumeSandbox: struct({ request: integer(0) }),
  /** Answered by CheckpointTaken or CheckpointFailed; with `hold` it stays frozen and drained. */
  TakeCheckpoint: struct({ checkpointId, hold: flag }),
  /** Makes the portable form out of the provider's own; answered by CheckpointArchived or ArchiveFailed. */
  ArchiveCheckpoint: struct({ checkpoint }),
  /** The session was deleted: what is kept for it may go. Not answered: it is sent once, to every runner. */
  ForgetSession: struct({}),
});

const wire = orderData(clearEnv);
const sealed = orderData(list(sealedEnv, 2));

export type OrderType = keyof typeof wire;

interface OrderEnvelope {
  /** The same for every repeat of the same order. */
  readonly orderId: string;
  readonly runnerId: string;
  readonly sessionId: string;
  readonly epoch: number;
  /** Null while the sandbox has not reported ready. */
  readonly instance: string | null;
}

type OrderOf<T extends OrderType, D extends typeof wire | typeof sealed> = OrderEnvelope & {
  readonly type: T;
  readonly data: Shaped<D[T]>;
};

/** As the domain owes it: environment values are still sealed, the session's own before the exec's. */
export type SealedOrder = { [T in OrderType]: OrderOf<T, typeof sealed> }[OrderType];
/** As the runner gets it. */
export type Order = { [T in OrderType]: OrderOf<T, typeof wire> }[OrderType];
export type OrderNamed<T extends OrderType> = OrderOf<T, typeof wire>;

export const orderIdOf = (
  type: OrderType,
  sessionId: string,
  epoch: number,
  target: string | null,
): string => [type, sessionId, epoch, ...(target === null ? [] : [target])].join(':');

/** Opens the sealed values of an order; later layers win. */
export function unsealOrder(
  order: SealedOrder,
  unseal: (env: SharedSealedEnv) => Readonly<Record<string, string>>,
): Order {
  if (order.type === 'CreateSandbox' || order.type === 'StartExec') {
    const env = Object.assign({}, ...order.data.env.map(unseal));
    return { ...order, data: { ...order.data, env } } as Order;
  }
  return order;
}
type SharedSealedEnv = Shaped<typeof sealedEnv>;

const anything: Shape<unknown> = (value) => value;
const envelopeShape = struct({
  type: oneOf(...(Object.keys(wire) as OrderType[])),
  orderId: text512,
  runnerId,
  sessionId,
  epoch: epochNumber,
  instance: nullable(instanceId),
  data: anything,
});

export const ORDER_TYPES = Object.keys(wire) as readonly OrderType[];

/** Takes an order off the wire; throws `Malformed`. */
export function parseOrder(value: unknown): Order {
  const { data, ...rest } = envelopeShape(value, 'order');
  const shape: Shape<object> = wire[rest.type];
  return { ...rest, data: shape(data, `${rest.type} data`) } as Order;
}
