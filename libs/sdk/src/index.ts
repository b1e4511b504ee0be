export {
  Command,
  type CommandResult,
  Commands,
  type RunOptions,
  type StartOptions,
} from './commands';
export { ConnectionFailed, VmuxError } from './errors';
export type { HistoryOptions } from './history';
export type { LogItem, LogOptions } from './logs';
export {
  type CreateOptions,
  type ListOptions,
  Sandbox,
  type StopOptions,
  type Through,
} from './sandbox';
export type {
  CommandExit,
  CommandInfo,
  HistoryEvent,
  SessionInfo,
  SessionStatus,
  SessionSummary,
  Stream,
} from './types';
export { type CallOptions, type ChangeOptions, Vmux, type VmuxSettings } from './vmux';
