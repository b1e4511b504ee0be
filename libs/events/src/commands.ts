import {
  checkpointId,
  correlationId,
  execId,
  forkId,
  instanceId,
  ownerId,
  principalId,
  scopedKeyText,
  sessionId,
  sha256Hex,
  shareId,
  signalId,
  traceparentText,
} from './ids';
import {
  flag,
  integer,
  list,
  matching,
  nullable,
  oneOf,
  type Shape,
  type Shaped,
  struct,
  text,
  withOptional,
} from './shape';
import {
  activityKind,
  epochNumber,
  execSpec,
  lineage,
  lossEvidence,
  MAX_REPLAY,
  placement,
  portNumber,
  provider,
  replayItem,
  sessionSpec,
  shareRight,
  signalName,
  time,
} from './values';

/** What clients ask for, by way of the gateway. Ids and times come in as data. */
const clientData = {
  CreateSession: struct({
    name: matching(/^(?=.{1,52}$)[a-z0-9]+(?:-[a-z0-9]+)*$/, 'a session name'),
    attempt: integer(0, 1000),
    provider,
    spec: sessionSpec,
    lineage: nullable(lineage),
  }),
  IssueExec: struct({ execId, spec: execSpec }),
  CancelExec: struct({ execId, graceMs: integer(0, 600_000) }),
  SignalExec: struct({ execId, signalId, signal: signalName }),
  /** `force` does not wait for a runner that cannot be reached. */
  StopSession: struct({ graceMs: nullable(integer(0, 600_000)), force: flag }),
  /** `force` stops a live session first. */
  DeleteSession: struct({ force: flag }),
  SuspendSession: struct({}),
  ResumeSession: struct({}),
  TakeCheckpoint: struct({ checkpointId, name: nullable(text(128, 1)) }),
  RollbackSession: struct({ checkpointId, allowBaseChange: flag }),
  /** Without a checkpoint a new one is taken first, under `newCheckpointId`. */
  ForkSession: struct({
    forkId,
    checkpointId: nullable(checkpointId),
    newCheckpointId: checkpointId,
    name: matching(/^(?=.{1,52}$)[a-z0-9]+(?:-[a-z0-9]+)*$/, 'a session name'),
    count: integer(1, 100),
    provider: nullable(provider),
  }),
  MoveSession: struct({ provider, checkpointId, allowBaseChange: flag }),
  /** `force` declares a sandbox lost that cannot be reached. */
  RehydrateSession: withOptional(
    struct({
      checkpointId: nullable(checkpointId),
      provider: nullable(provider),
      allowBaseChange: flag,
      force: flag,
      /**
       * Execs to run again, in order, as far as each ends as it did before; usually none. One more than can be
       * run again says that there are too many.
       */
      replay: list(replayItem, MAX_REPLAY + 1),
    }),
    /** It was asked to run them again, and they cannot be said: refused, unless its key is known. */
    { whyNoReplay: text(1000, 1) },
  ),
  GrantShare: struct({
    shareId,
    tokenHash: sha256Hex,
    rights: list(shareRight, 4),
    ports: list(portNumber, 64),
    expiresAt: time,
  }),
  RevokeShare: struct({ shareId }),
  /** Null leaves it as it is; `wake` lets whoever looks at a public port wake the session. */
  SetPortAccess: struct({
    port: portNumber,
    public: nullable(flag),
    wake: nullable(flag),
    revokeTokens: flag,
  }),
  /** Somebody is here: wakes the session if it rests. */
  WakeSession: struct({ cause: oneOf('attach', 'preview') }),
  /** Somebody was here: never wakes. */
  NoteActivity: struct({ activity: activityKind }),
};

/** What the session service asks of itself. Never taken from outside. */
const systemData = {
  FireDeadline: struct({
    kind: oneOf(
      'idle',
      'keep',
      'max_runtime',
      'runtime_warning',
      'exec_timeout',
      'checkpoint',
      'provider_limit',
      'unplaced',
    ),
    execId: nullable(execId),
    /** For what the deadline may ask for. */
    checkpointId,
  }),
  /** A sandbox is owed and a runner was found for it. */
  PlaceSandbox: struct({}),
  DeclareLost: struct({ epoch: epochNumber, evidence: lossEvidence }),
  /** Its runner has been silent since then, and another one has its sandboxes in reach. */
  ReassignRunner: struct({ epoch: epochNumber, instance: instanceId, to: placement, since: time }),
  RecordFork: struct({ forkId, index: integer(0, 99), child: sessionId }),
};

export type ClientCommandType = keyof typeof clientData;
export type SystemCommandType = keyof typeof systemData;
export type CommandType = ClientCommandType | SystemCommandType;

type Data = typeof clientData & typeof systemData;

const envelope = {
  sessionId,
  /** Of the request, scoped to its owner; what `once` is decided by. */
  key: scopedKeyText,
  digest: sha256Hex,
  owner: ownerId,
  principal: principalId,
  correlationId,
  traceparent: nullable(traceparentText),
  at: time,
  /** The runner that a new sandbox would go to; null when none was found or none is needed. */
  placement: nullable(placement),
};
type Envelope = Shaped<ReturnType<typeof struct<typeof envelope>>>;

type ClientCommandOf<T extends ClientCommandType> = Envelope & {
  readonly type: T;
  readonly data: Shaped<Data[T]>;
};
/** A system command has no key and no owner: it is decided again whenever it is owed again. */
type SystemCommandOf<T extends SystemCommandType> = Omit<Envelope, 'key' | 'digest' | 'owner'> & {
  readonly type: T;
  readonly data: Shaped<Data[T]>;
};

export type ClientCommand = { [T in ClientCommandType]: ClientCommandOf<T> }[ClientCommandType];
export type SystemCommand = { [T in SystemCommandType]: SystemCommandOf<T> }[SystemCommandType];
export type Command = ClientCommand | SystemCommand;
export type CommandNamed<T extends CommandType> = Extract<Command, { readonly type: T }>;

const envelopeShape = struct(envelope);
const typeShape = oneOf(...(Object.keys(clientData) as ClientCommandType[]));

export const CLIENT_COMMAND_TYPES = Object.keys(clientData) as readonly ClientCommandType[];

/** Takes a client's command off the wire; throws `Malformed`. */
export function parseCommand(value: unknown): ClientCommand {
  const { type, data } = struct({ type: typeShape, data: anything })(value, 'command');
  const shape: Shape<object> = clientData[type];
  return {
    ...envelopeShape(value, 'command'),
    type,
    data: shape(data, `${type} data`),
  } as ClientCommand;
}

const anything: Shape<unknown> = (value) => value;
