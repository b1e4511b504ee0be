export {
  CAPABILITIES,
  type CallOptions,
  type Capability,
  type CheckpointFiles,
  type CheckpointKeeper,
  type CheckpointOptions,
  type CreateOptions,
  type DriverCapabilities,
  type Layer,
  type NativeCheckpoint,
  type OpenedCheckpoint,
  type OtherLimit,
  type Probe,
  type SandboxDriver,
  type SandboxId,
  type SandboxLimits,
  type SandboxRecord,
  type SandboxSpec,
  type SnapshotOptions,
} from './driver';
export {
  DriverRefused,
  DriverUnavailable,
  type NextStep,
  PipeBroken,
  ProtocolViolation,
  type RefusalReason,
  SandboxError,
  SandboxGone,
  type SupervisorErrorReason,
  SupervisorRefused,
  WrongSupervisor,
} from './errors';
export { type ExecInput, openInput } from './exec-input';
export {
  type ExecOutcome,
  type ExecState,
  type FigureName,
  type Figures,
  type FileEntry,
  type FileType,
  type Hello,
  hasEnded,
  isPlainName,
  type OutputItem,
  type PortNotice,
} from './supervisor-answers';
export {
  type ReadOptions,
  type StartExec,
  type StdinTaken,
  type StdinWrite,
  SupervisorClient,
} from './supervisor-client';
export type { ConnectOptions } from './supervisor-connection';
export type { Bytes, FileCall, SupervisorFiles } from './supervisor-files';
export type { ReadItem } from './supervisor-streams';
export type { PortItem, WatchItem } from './supervisor-watch';
export { plainFile, TAR_END, tarHeader, tarPadding } from './work/layer-tar';
export { type Runner, type RunnerSettings, startRunner } from './work/runner';
export {
  isLoopback,
  type RunnerConfig,
  runnerConfigFrom,
  runnerProcess,
} from './work/runner-process';
