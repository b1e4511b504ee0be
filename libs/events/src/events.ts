import type {
  ActivityKind,
  Base,
  Capability,
  Checkpoint,
  ExecSpec,
  Lineage,
  LossEvidence,
  Outcome,
  ReplayItem,
  SessionSpec,
  ShareRight,
  Sizes,
  Stage,
  UnknownReason,
  Usage,
} from './values';

/**
 * Everything that can happen to a session, in the past tense. A shape once appended never changes: a new
 * one gets a new version here, and the old one moves to history.ts. `at` is milliseconds since 1970.
 */
export interface SessionFacts {
  SessionCreated: At & {
    sessionId: string;
    owner: string;
    name: string;
    attempt: number;
    provider: string;
    spec: SessionSpec;
    /** Where a fork comes from. */
    lineage: Lineage | null;
  };
  SessionStopped: At & { cause: StopCause };
  SessionFailed: At & { message: string };
  /** All that is left of a deleted session: whose it was, and the key that must not create it again. */
  SessionDeleted: At & { sessionId: string; owner: string; createdBy: string | null };
  StopRequested: At & { cause: StopCause; graceMs: number; thenDelete: boolean };
  ActivityObserved: At & { activity: ActivityKind };

  SandboxRequested: At & {
    epoch: number;
    runnerId: string;
    provider: string;
    capabilities: readonly Capability[];
    /** Whoever belongs to it can take the sandbox over. */
    pool?: string;
    purpose: SandboxPurpose;
    restore: Checkpoint | null;
    allowBaseChange: boolean;
  };
  SandboxStarted: At & {
    epoch: number;
    instance: string;
    runnerId: string;
    base: Base | null;
    restored: { checkpointId: string; manifestDigest: string } | null;
  };
  SandboxFailed: At & {
    epoch: number;
    message: string;
    retryable: boolean;
    /** Its runner did not say that nothing is left of it. */
    mayRemain: boolean;
  };
  SandboxLost: At & { epoch: number; instance: string; evidence: LossEvidence };
  SandboxReleased: At & { epoch: number; instance: string };
  /** The provider ends the sandbox then, whatever it does. */
  LifetimeKnown: At & { epoch: number; endsAt: number };
  RunnerReassigned: At & { epoch: number; from: string; to: string };
  SandboxAdopted: At & { epoch: number; instance: string; runnerId: string };
  SuspendRequested: At & { epoch: number; cause: RestCause };
  SandboxSuspended: At & { epoch: number };
  SuspendFailed: At & { epoch: number; message: string };
  ResumeRequested: At & { epoch: number; cause: WakeCause };
  SandboxResumed: At & { epoch: number };
  ResumeFailed: At & { epoch: number; message: string };
  /** The checkpoint is taken first; without it nothing is released. */
  ReleaseRequested: At & { epoch: number; checkpointId: string; cause: RestCause };
  RehydrateRequested: At & {
    /** Null: the session has no checkpoint, so its files start from the base and the bundle again. */
    checkpointId: string | null;
    provider: string;
    allowBaseChange: boolean;
    cause: WakeCause;
  };
  /** Follows a request to rehydrate; each re-run is an exec of its own that names the one it follows. */
  ReplayRequested: At & { items: readonly ReplayItem[] };
  ReplayFinished: At & { count: number };
  ReplayStopped: At & {
    execId: string;
    follows: string;
    expected: Outcome;
    /** Null: its outcome is unknown. */
    outcome: Outcome | null;
  };
  RestoreFailed: At & { checkpointId: string | null; message: string };

  ExecIssued: At & {
    execId: string;
    /** Null while no sandbox runs: it waits for `ExecDispatched`. */
    epoch: number | null;
    spec: ExecSpec;
    /** The exec that this one starts again. */
    follows: string | null;
  };
  ExecDispatched: At & { execId: string; epoch: number };
  ExecStarted: At & { execId: string; epoch: number; pid: number | null };
  ExecExited: At & {
    execId: string;
    /** Null: it was never dispatched. */
    epoch: number | null;
    outcome: Outcome;
    sizes: Sizes;
    usage: Usage | null;
  };
  /** The sizes are those that the log was closed with. */
  ExecOutcomeUnknown: At & { execId: string; epoch: number; reason: UnknownReason; sizes: Sizes };
  ExecCancelRequested: At & { execId: string; cause: CancelCause; graceMs: number };
  ExecSignalRequested: At & { execId: string; signalId: string; signal: string };
  ExecSignalled: At & { execId: string; signalId: string; delivered: boolean };

  PortOpened: At & { epoch: number; port: number; address: string; execId: string | null };
  PortClosed: At & { epoch: number; port: number };
  /** Who may look at a port from outside: tokens of an earlier generation are no longer taken. */
  PortAccessChanged: At & { port: number; public: boolean; wake: boolean; generation: number };
  SetupDetected: At & {
    epoch: number;
    manifests: readonly { kind: string; path: string; digest: string | null }[];
    missingTools: readonly string[];
  };
  StageReached: At & { epoch: number; stage: Stage; execId: string | null };
  LimitExceeded: At & {
    limit: 'memory' | 'cpu' | 'pids' | 'disk' | 'runtime' | 'log';
    level: 'warning' | 'exceeded' | 'killed';
    value: number;
    max: number;
    execId: string | null;
  };

  CheckpointRequested: At & {
    checkpointId: string;
    epoch: number;
    name: string | null;
    cause: CheckpointCause;
    /** The sandbox stays frozen after it: a move goes on from there. */
    hold: boolean;
  };
  CheckpointTaken: At & { checkpoint: Checkpoint };
  CheckpointFailed: At & { checkpointId: string; message: string };
  /** The portable form of a checkpoint that was taken in a provider's own form. */
  CheckpointArchived: At & {
    checkpointId: string;
    artifact: string;
    manifestDigest: string;
    bytes: number;
    newBytes: number;
  };
  /** It stays in the provider's own form alone. */
  ArchiveFailed: At & { checkpointId: string; message: string };
  RollbackRequested: At & { checkpointId: string; allowBaseChange: boolean };
  RolledBack: At & { checkpointId: string; epoch: number };
  ForkRequested: At & {
    forkId: string;
    checkpointId: string;
    /** The names of children whose ids are found when they are created. */
    name: string;
    count: number;
    provider: string;
  };
  Forked: At & { forkId: string; index: number; child: string; checkpointId: string };
  MoveRequested: At & {
    provider: string;
    checkpointId: string;
    allowBaseChange: boolean;
  };
  Moved: At & { from: string; to: string; epoch: number };
  MoveFailed: At & { message: string };

  ShareGranted: At & {
    shareId: string;
    tokenHash: string;
    rights: readonly ShareRight[];
    ports: readonly number[];
    expiresAt: number;
  };
  ShareRevoked: At & { shareId: string };
}

interface At {
  at: number;
}

export type StopCause = 'request' | 'max_runtime' | 'exec_ended';
export type RestCause = 'request' | 'idle' | 'keep' | 'provider_limit';
export type WakeCause = 'request' | 'exec' | 'attach' | 'preview' | 'policy' | 'force';
export type CancelCause = 'request' | 'timeout';
export type CheckpointCause = 'request' | 'policy' | 'release' | 'fork' | 'move';
export type SandboxPurpose = 'create' | 'rehydrate' | 'rollback' | 'move';

export type SessionEventType = keyof SessionFacts;

type EventOf<T extends SessionEventType> = {
  readonly type: T;
  readonly version: 1;
  readonly data: DeepReadonly<SessionFacts[T]>;
};
type DeepReadonly<T> = T extends readonly (infer I)[]
  ? readonly DeepReadonly<I>[]
  : T extends object
    ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
    : T;

export type SessionEvent = { [T in SessionEventType]: EventOf<T> }[SessionEventType];
export type SessionEventNamed<T extends SessionEventType> = EventOf<T>;
export type SessionEventData<T extends SessionEventType> = EventOf<T>['data'];

/** Makes an event of today's version. */
export const fact = <T extends SessionEventType>(
  type: T,
  data: SessionEventData<T>,
): SessionEventNamed<T> => ({ type, version: 1, data });

/** Kept with every event: who caused it, by which request, and under which key. */
export interface EventMetadata {
  /** The request's key, scoped to its owner; only on events that a keyed command caused. */
  readonly key?: string;
  /** SHA-256 of the request that the key is bound to. */
  readonly digest?: string;
  /** `key:<id>`, `share:<id>`, `runner:<id>` or `system`. */
  readonly principal: string;
  readonly correlationId: string;
  readonly traceparent?: string;
  /** The event's version, for readers of the raw stream. */
  readonly version: number;
}

/** An event with its place in the stream. */
export interface Recorded<E = SessionEvent> {
  readonly event: E;
  readonly revision: number;
  readonly metadata: EventMetadata;
}
