export {
  Command,
  type CommandResult,
  Commands,
  type RunOptions,
  type StartOptions,
} from './commands';
export type { ErrorCode, KnownErrorCode } from './error-codes';
export { ConnectionFailed, VmuxError } from './errors';
export { type FileOptions, Files, type ReadOptions, type WriteOptions } from './files';
export type { HistoryOptions } from './history';
export { Input } from './input';
export type { LogItem, LogOptions } from './logs';
export { Ports } from './ports';
export {
  type CreateOptions,
  type ListOptions,
  type RehydratePolicy,
  Sandbox,
  type StopOptions,
  type Through,
} from './sandbox';
export { type AttachOptions, Terminal, type TerminalItem } from './terminal';
export {
  type CheckpointInfo,
  type ForkOptions,
  type ForkTree,
  type Rehydrated,
  type RehydrateOptions,
  type RestoreOptions,
  SessionTime,
  type WaitOptions,
} from './time';
export type {
  CommandExit,
  CommandInfo,
  FileInfo,
  HistoryEvent,
  PortInfo,
  PreviewToken,
  SandboxMaking,
  SessionInfo,
  SessionStats,
  SessionStatus,
  SessionSummary,
  SessionUsage,
  Stream,
} from './types';
export {
  type ByteSource,
  type CallOptions,
  type ChangeOptions,
  Vmux,
  type VmuxSettings,
} from './vmux';
