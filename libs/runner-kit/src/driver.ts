import type { Duplex } from 'node:stream';
import type { MakingStage } from '@vmux/events';
import type { SupervisorClient } from './supervisor-client';

/** One sandbox of one epoch of one session. A session never has two with the same epoch and instance. */
export interface SandboxId {
  readonly sessionId: string;
  readonly epoch: number;
  /** Minted by the runner for each attempt: 1–64 of `A-Za-z0-9._-`. */
  readonly instance: string;
}

/** Enforced, whatever runs inside; the disk where the driver offers `diskLimit`, the rest see `OtherLimit`. */
export interface SandboxLimits {
  /** In processors; 0.5 is half of one. */
  readonly cpus: number;
  readonly memoryMiB: number;
  readonly diskMiB: number;
  readonly pids: number;
}

export interface SandboxSpec {
  readonly id: SandboxId;
  readonly limits: SandboxLimits;
  /** Refused where `diskMiB` cannot be enforced, instead of doing without. */
  readonly needsDiskLimit?: boolean | undefined;
  /** What the root is made of, in the driver's own terms; null for its default. */
  readonly image: string | null;
  /** Lines for a shell that are run on top of it, each once for all. Needs the capability `build`. */
  readonly build?: readonly string[];
  /** Whether the public internet can be reached from inside. Needs the capability `egress`. */
  readonly egress: boolean;
  /**
   * Names and addresses that may be reached although they are not public: of this machine, of its networks.
   * They are resolved where the driver runs.
   */
  readonly allowHosts?: readonly string[];
  /** A kind of accelerator. Needs the capability `gpu`. */
  readonly gpu: string | null;
}

export const CAPABILITIES = [
  'gpu',
  'suspend',
  'checkpoint',
  'memorySnapshot',
  'fork',
  'pty',
  'previews',
  'egress',
  'build',
  /** `diskMiB` is enforced, not only asked for. */
  'diskLimit',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** Enforced by every driver that does not say in `missing` why it cannot: where one is asked for, it is not called. */
export type OtherLimit = 'memoryLimit' | 'cpuLimit' | 'pidsLimit';

export interface DriverCapabilities {
  /** Whether this driver can create sandboxes here at all. */
  readonly available: boolean;
  /** Why not, in one line that says what to do about it; null when available. */
  readonly reason: string | null;
  readonly offered: readonly Capability[];
  /** Names whose sandboxes these are: every driver that says the same can adopt them, wherever it runs. */
  readonly pool?: string;
  /** Why each capability that is not offered is not. */
  readonly missing: Readonly<Partial<Record<Capability | OtherLimit, string>>>;
  /** The kinds of GPU, and how many of each one sandbox may have. */
  readonly gpus?: Readonly<Record<string, number>>;
}

/** What was found, never what is assumed: only `gone` means that the sandbox does not exist. */
export type Probe =
  | { readonly state: 'running' }
  | { readonly state: 'suspended' }
  | { readonly state: 'gone'; readonly evidence: string };

export interface SandboxRecord {
  readonly id: SandboxId;
  readonly limits: SandboxLimits;
  readonly createdAtMs: number;
  readonly probe: Probe;
  /** The checkpoint of this driver that it was restored from. */
  readonly restoredFrom?: string | null;
  /** The portable checkpoint whose files its root began with: what that had removed is gone from it too. */
  readonly madeOf?: string | null;
}

/** A provider's own fast form of a checkpoint; the portable form is made of the supervisor's archives. */
export interface NativeCheckpoint {
  readonly ref: string;
  readonly bytes: number;
}

export interface OpenedCheckpoint {
  readonly id: SandboxId;
  readonly client: SupervisorClient;
  /** By the clock that stamps its files, and not after the sandbox that it is of went on. */
  readonly takenAtMs: number;
}

/** A tar archive as engines of containers take it for a layer of an image. */
export interface Layer {
  readonly bytes: number;
  readonly stream: AsyncIterable<Buffer>;
}

/** The files of a portable checkpoint. */
export interface CheckpointFiles {
  readonly artifact: string;
  /** What has to lie over the sandbox's base (null) or over an earlier checkpoint of the same sandbox. */
  over(artifact: string | null): Promise<Layer>;
}

export interface CheckpointKeeper {
  readonly ref: string;
  /** Makes the driver's form; the sandbox goes on meanwhile, or is no more. */
  keep(files: CheckpointFiles, options?: CallOptions): Promise<void>;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface CreateOptions extends CallOptions {
  /** Hears how far it has come, in the provider's words: `queued`, waiting for a T4. */
  readonly onStage?: (stage: MakingStage, detail: string | null) => void;
}

export interface CheckpointOptions extends CallOptions {
  readonly name?: string;
}

export interface SnapshotOptions extends CallOptions {
  /** By the sandbox's clock: what has changed after it is the workload's, in what is restored from it too. */
  readonly sinceNs: bigint;
}

/**
 * Creates, finds, freezes and ends sandboxes and opens byte pipes to their supervisors; what happens
 * inside one is the supervisor's. Faults are `DriverUnavailable` (try again), `DriverRefused` (never) and
 * `SandboxGone` (lost). Sandboxes outlive the driver and its process: a new driver finds them by `list`.
 */
export interface SandboxDriver {
  /** `ns`, `docker`, … */
  readonly provider: string;

  /** False where sandboxes share the machine's files: nothing of them is ever stored or put back. */
  readonly isolates?: boolean;

  /** Where the work of that sandbox is; `/workspace` without it. */
  workspaceOf?(id: SandboxId): string;

  capabilities(options?: CallOptions): Promise<DriverCapabilities>;

  /** Resolves when the supervisor can be talked to. A create that fails or is aborted leaves nothing. */
  create(spec: SandboxSpec, options?: CreateOptions): Promise<void>;

  /** Takes over a sandbox that another process created; throws `SandboxGone` when there is none. */
  adopt(id: SandboxId, options?: CallOptions): Promise<SandboxRecord>;

  /** Every sandbox of this driver that is not destroyed, also those whose processes are gone. */
  list(options?: CallOptions): Promise<readonly SandboxRecord[]>;

  /** Looks from outside, without asking the supervisor and without waking anything. */
  probe(id: SandboxId, options?: CallOptions): Promise<Probe>;

  /** A new byte pipe to the supervisor; any number may be open. */
  openPipe(id: SandboxId, options?: CallOptions): Promise<Duplex>;

  /**
   * Another byte pipe to the supervisor, with less between it and this end, for what is carried to and from
   * ports. It may break where one of `openPipe` would not, and may be impossible for a while. Of drivers whose
   * usual pipes are slow.
   */
  openDirectPipe?(id: SandboxId, options?: CallOptions): Promise<Duplex>;

  /**
   * A pipe to what a sandbox that is gone left behind: its supervisor's record and the output that nobody
   * acknowledged, for reading. Of drivers whose record outlives a sandbox.
   */
  openRemains?(id: SandboxId, options?: CallOptions): Promise<Duplex>;

  /** Stops every process without ending it. Suspending twice is suspending. */
  suspend(id: SandboxId, options?: CallOptions): Promise<void>;

  resume(id: SandboxId, options?: CallOptions): Promise<void>;

  /**
   * Keeps its files as they are now, in the driver's own form. A sandbox that is suspended stays so. Under a
   * name that was used for it before it is the checkpoint of then.
   */
  checkpoint(id: SandboxId, options?: CheckpointOptions): Promise<NativeCheckpoint>;

  /** As `create`, with the files of a checkpoint of this driver. */
  restore(spec: SandboxSpec, from: NativeCheckpoint, options?: CreateOptions): Promise<void>;

  /**
   * Opens a checkpoint of this driver in a sandbox of its own, in which nothing runs, for as long as `read`
   * takes; nobody finds that sandbox by `list`. Of drivers that have checkpoints of their own.
   */
  readCheckpoint?<T>(
    from: NativeCheckpoint,
    read: (opened: OpenedCheckpoint) => Promise<T>,
    options?: CallOptions,
  ): Promise<T>;

  /**
   * Of drivers whose own form is made out of the portable one: what keeps a checkpoint of this sandbox. What
   * is restored from that form is looked at, and what is not as it was is put right.
   */
  keeper?(id: SandboxId, artifact: string, options?: CallOptions): Promise<CheckpointKeeper>;

  /**
   * Of drivers whose own form is the provider's snapshot of a disk: keeps the files of a sandbox in which
   * nothing runs now, while its portable form is read. What is restored from it is looked at like what a
   * `keeper` kept. Every driver of the same pool can restore it.
   */
  snapshot?(id: SandboxId, options: SnapshotOptions): Promise<NativeCheckpoint>;

  /** Every checkpoint that this driver has, the oldest first. */
  checkpoints?(
    options?: CallOptions,
  ): Promise<readonly { readonly ref: string; readonly sessionId: string }[]>;

  /** Removes a checkpoint. What was restored from it goes on. Forgetting twice is forgetting. */
  forget?(ref: string, options?: CallOptions): Promise<void>;

  /**
   * Absolute paths, one character for each byte, of what the sandbox was made of and is gone from it; a
   * directory that was removed and made again is one of them. Of a driver without it such removals are not
   * part of checkpoints.
   */
  removed?(id: SandboxId, options?: CallOptions): Promise<readonly string[]>;

  /** Ends every process and removes everything, its output too. Destroying twice is destroying. */
  destroy(id: SandboxId, options?: CallOptions): Promise<void>;

  /** Hears of sandboxes that the provider is going to end, and when. Of drivers whose providers say so. */
  onEnding?(listener: (id: SandboxId, endsAtMs: number) => void): void;

  /** Lets go of what this driver holds in this process. Sandboxes go on. */
  close(): Promise<void>;
}
