import type {
  Base,
  Capability,
  Checkpoint,
  ExecSpec,
  Lineage,
  Outcome,
  Placement,
  ReplayItem,
  SandboxPurpose,
  SessionSpec,
  ShareRight,
  Sizes,
  StopCause,
  WakeCause,
} from '@vmux/events';
import type { KeyMemory } from './key-memory';

/** Raised whenever the same history folds to another state: snapshots of another version are ignored. */
export const FOLD_VERSION = 7;

export const MAX_OPEN_EXECS = 1000;
/** At least as many ended execs are remembered, and at most twice as many. */
export const ENDED_EXECS = 256;
export const MAX_CHECKPOINTS = 512;
export const MAX_UNARCHIVED = 32;
export const MAX_OPEN_FORKS = 16;
export const MAX_SHARES = 100;
export const MAX_PORTS = 1024;
/** Ports whose access was ever changed. */
export const MAX_PORT_ACCESS = 256;
export const MAX_RETIRED = 32;
export const MAX_STARTS = 3;
/** How long a runner is silent before another one takes its sandbox over. */
export const REASSIGN_AFTER_MS = 20_000;

export type Session = Unborn | Living | Over | Deleted;
export type Living = Starting | Running | Suspended | Resting | Stopping;

export interface Unborn {
  readonly status: 'unborn';
  readonly revision: -1;
}

export interface Starting extends Known {
  readonly status: 'starting';
  readonly current: null;
}
export interface Running extends Known {
  readonly status: 'running';
  readonly current: Current;
}
export interface Suspended extends Known {
  readonly status: 'suspended';
  readonly current: Current;
}
/** No sandbox: it was given back after a checkpoint, or it was lost. */
export interface Resting extends Known {
  readonly status: 'released' | 'lost';
  readonly current: null;
}
export interface Stopping extends Known {
  readonly status: 'stopping';
  readonly current: Current | null;
  readonly stop: Stop;
}
export interface Over extends Known {
  readonly status: 'stopped' | 'failed';
  readonly current: null;
}
export interface Deleted {
  readonly status: 'deleted';
  readonly revision: number;
  readonly sessionId: string;
  readonly owner: string;
  readonly createdBy: string | null;
}

/** What is known of every session that exists. All of it is bounded. */
export interface Known {
  readonly revision: number;
  readonly sessionId: string;
  readonly owner: string;
  readonly name: string;
  readonly provider: string;
  readonly spec: SessionSpec;
  readonly lineage: Lineage | null;
  readonly createdAt: number;
  readonly createdBy: string | null;
  readonly keys: KeyMemory;

  /** The highest epoch that was ever asked for. */
  readonly lastEpoch: number;
  readonly pending: Pending | null;
  /** The one request that is underway. */
  readonly operation: Operation | null;
  readonly replay: Replay | null;
  /** Sandboxes of the past whose runner is still to be told to destroy them. */
  readonly retired: readonly Retired[];
  /** The last attempt to wake it failed: it is not tried again until somebody asks. */
  readonly wakeFailed: boolean;
  readonly stop: Stop | null;

  readonly execs: Readonly<Record<string, OpenExec>>;
  /** The last ones, in two halves, so that adding one copies few. */
  readonly ended: { readonly older: readonly EndedExec[]; readonly newer: readonly EndedExec[] };
  /** Declared services that ended with their epoch. */
  readonly fallenServices: readonly FallenService[];

  readonly ports: Readonly<Record<string, Port>>;
  /** By port, as far as it was ever changed. */
  readonly access: Readonly<Record<string, PortAccess>>;
  /** When each was last reported of the current sandbox: a repeat is not news. */
  readonly noted: Readonly<Record<string, number>>;
  readonly checkpoints: readonly Checkpoint[];
  /** Those whose portable form is still to be made. */
  readonly unarchived: readonly string[];
  readonly forks: readonly Fork[];
  readonly shares: readonly Share[];

  readonly lastActivityAt: number;
  readonly firstStartedAt: number | null;
  readonly lastCheckpointAt: number;
  readonly warnedOfRuntime: boolean;
  /** Why the set-up of the current sandbox failed, until an exec has been told. */
  readonly setupFailed: string | null;
}

export interface Stop {
  readonly cause: StopCause;
  readonly graceMs: number;
  readonly thenDelete: boolean;
}

export interface Current extends Placement {
  readonly epoch: number;
  readonly instance: string;
  readonly base: Base | null;
  readonly startedAt: number;
  /** A checkpoint that was taken with `hold` left it frozen. */
  readonly frozen: boolean;
  /** Reassigned to a runner that has not answered yet. */
  readonly adopting: boolean;
  /** When its provider ends it; null when nobody said. */
  readonly endsAt: number | null;
}

export interface Pending extends Placement {
  readonly epoch: number;
  readonly purpose: SandboxPurpose;
  readonly restore: Checkpoint | null;
  readonly allowBaseChange: boolean;
}

export interface Retired {
  readonly epoch: number;
  readonly instance: string | null;
  readonly runnerId: string;
}

export type Operation =
  | { readonly kind: 'create'; readonly starts: number }
  | { readonly kind: 'suspend'; readonly request: number }
  | { readonly kind: 'resume'; readonly request: number; readonly cause: WakeCause }
  /** A move failed: the frozen source goes on. */
  | { readonly kind: 'thaw'; readonly request: number }
  | { readonly kind: 'checkpoint'; readonly checkpointId: string }
  | { readonly kind: 'release'; readonly checkpointId: string; readonly taken: boolean }
  | (Restoring & { readonly kind: 'rehydrate'; readonly checkpointId: string | null })
  | (Restoring & { readonly kind: 'rollback'; readonly checkpointId: string })
  | (Restoring & {
      readonly kind: 'move';
      readonly checkpointId: string;
      readonly taken: boolean;
      /** When it last came a step further. */
      readonly since: number;
    });

interface Restoring {
  readonly provider: string;
  readonly allowBaseChange: boolean;
  readonly starts: number;
}

export interface Replay {
  readonly left: readonly ReplayItem[];
  readonly done: number;
  /** The re-run that is underway or has just ended. */
  readonly last: {
    readonly execId: string;
    readonly item: ReplayItem;
    readonly ended: boolean;
    readonly outcome: Outcome | null;
  } | null;
}

export interface OpenExec {
  readonly execId: string;
  /** Revision of its `ExecIssued`. */
  readonly issued: number;
  readonly spec: ExecSpec;
  /** Null while it is queued. */
  readonly epoch: number | null;
  readonly startedAt: number | null;
  readonly cancel: { readonly graceMs: number } | null;
  readonly signals: readonly { readonly signalId: string; readonly signal: string }[];
  readonly noted: Readonly<Record<string, number>>;
}

export interface EndedExec {
  readonly execId: string;
  readonly sizes: Sizes;
}

export interface FallenService {
  readonly execId: string;
  readonly spec: ExecSpec;
}

export interface Port {
  readonly port: number;
  readonly open: boolean;
  readonly address: string;
  readonly changedAt: number;
}

export interface PortAccess {
  readonly public: boolean;
  readonly wake: boolean;
  readonly generation: number;
}

export interface Fork {
  readonly forkId: string;
  readonly checkpointId: string;
  readonly name: string;
  readonly provider: string;
  /** Children that are still to be created, by number. */
  readonly missing: readonly number[];
}

export interface Share {
  readonly shareId: string;
  readonly tokenHash: string;
  readonly rights: readonly ShareRight[];
  readonly ports: readonly number[];
  readonly expiresAt: number;
}

export const UNBORN: Unborn = { status: 'unborn', revision: -1 };

export type Existing = Living | Over;

export const exists = (session: Session): session is Existing =>
  session.status !== 'unborn' && session.status !== 'deleted';

export const isLiving = (session: Session): session is Living =>
  exists(session) && session.status !== 'stopped' && session.status !== 'failed';

export const endedExec = ({ ended }: Known, execId: string): EndedExec | undefined =>
  ended.newer.find((each) => each.execId === execId) ??
  ended.older.find((each) => each.execId === execId);

export const canDo = (sandbox: Placement, capability: Capability): boolean =>
  sandbox.capabilities.includes(capability);

export const openExecs = (session: Known): readonly OpenExec[] => Object.values(session.execs);

export const queuedExecs = (session: Known): readonly OpenExec[] =>
  openExecs(session).filter(({ epoch }) => epoch === null);

export const dispatchedTo = (session: Known, epoch: number): readonly OpenExec[] =>
  openExecs(session).filter((exec) => exec.epoch === epoch);

/** New execs go straight to the current sandbox. */
export const acceptsWork = (session: Living): session is Running =>
  isReady(session) && session.replay === null;

export const isReady = (session: Living): session is Running =>
  session.status === 'running' &&
  (session.operation === null || session.operation.kind === 'checkpoint');

export const checkpointOf = (session: Known, checkpointId: string): Checkpoint | undefined =>
  session.checkpoints.find((each) => each.checkpointId === checkpointId);

export const lastCheckpoint = (session: Known): Checkpoint | null =>
  session.checkpoints.at(-1) ?? null;

/** Its portable form is not there yet, and another provider can take nothing else. */
export const mustBeArchivedFirst = (
  { unarchived }: Known,
  { checkpointId, native }: Checkpoint,
  provider: string,
): boolean => unarchived.includes(checkpointId) && native?.provider !== provider;
