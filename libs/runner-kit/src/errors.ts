/**
 * What the caller does next: `retry` the same call later, `refuse` whatever asked for it, or treat the
 * sandbox as `lost`. Every fault of a driver or of a pipe is one of the three.
 */
export type NextStep = 'retry' | 'refuse' | 'lost';

export abstract class SandboxError extends Error {
  abstract readonly next: NextStep;
  abstract readonly code: string;
}

/** Nothing was decided: the same call may succeed later. */
export class DriverUnavailable extends SandboxError {
  readonly next = 'retry';
  readonly code = 'driver_unavailable';
  constructor(detail: string, options?: ErrorOptions) {
    super(`${detail}: try again`, options);
    this.name = 'DriverUnavailable';
  }
}

/** The provider's own form of a checkpoint is not what it should be: the portable one is used next. */
export class SnapshotUnusable extends DriverUnavailable {}

export type RefusalReason =
  /** The driver or this machine has no such ability. */
  | 'unsupported'
  /** The request itself is wrong. */
  | 'invalid'
  /** There is one already. */
  | 'exists';

/** The call can never succeed as it is. Nothing was changed. */
export class DriverRefused extends SandboxError {
  readonly next = 'refuse';
  readonly code = 'driver_refused';
  constructor(
    readonly reason: RefusalReason,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(detail, options);
    this.name = 'DriverRefused';
  }
}

/** The sandbox is known not to exist any more. What its execs came to is unknown. */
export class SandboxGone extends SandboxError {
  readonly next = 'lost';
  readonly code = 'sandbox_gone';
  constructor(
    /** What the driver found, in one line. */
    readonly evidence: string,
    options?: ErrorOptions,
  ) {
    super(`the sandbox is gone: ${evidence}`, options);
    this.name = 'SandboxGone';
  }
}

/** The pipe ended. Unreachable is not lost: open another one, and probe when that fails. */
export class PipeBroken extends SandboxError {
  readonly next = 'retry';
  readonly code = 'pipe_broken';
  constructor(detail: string, options?: ErrorOptions) {
    super(`the pipe to the supervisor is broken (${detail}): open it again`, options);
    this.name = 'PipeBroken';
  }
}

/** The other end of the pipe does not keep to the protocol. The pipe is closed; nothing of it is trusted. */
export class ProtocolViolation extends SandboxError {
  readonly next = 'lost';
  readonly code = 'protocol_violation';
  constructor(detail: string) {
    super(`the supervisor broke the protocol: ${detail}`);
    this.name = 'ProtocolViolation';
  }
}

/** The pipe leads to another supervisor than the one asked for. */
export class WrongSupervisor extends SandboxError {
  readonly next = 'lost';
  readonly code = 'wrong_supervisor';
  constructor(
    readonly asked: { readonly epoch: number; readonly instance: string },
    readonly found: { readonly epoch: number; readonly instance: string },
  ) {
    super(
      `the supervisor is ${found.epoch}.${found.instance}, not ${asked.epoch}.${asked.instance}`,
    );
    this.name = 'WrongSupervisor';
  }
}

/** By number, as docs/supervisor-protocol.md lists them. */
const supervisorErrors = {
  1: 'malformed',
  2: 'version',
  3: 'mismatch',
  4: 'limit',
  5: 'not_found',
  6: 'ended',
  7: 'gone',
  8: 'range',
  9: 'stale_writer',
  10: 'gap',
  11: 'system',
  12: 'read_only',
  13: 'stopping',
  14: 'no_stdin',
  15: 'no_terminal',
  16: 'running',
  17: 'invalid',
  18: 'unsafe',
} as const;
export type SupervisorErrorReason = (typeof supervisorErrors)[keyof typeof supervisorErrors];

const isKnown = (number: number): number is keyof typeof supervisorErrors =>
  Object.hasOwn(supervisorErrors, number);

export const supervisorErrorReason = (number: number): SupervisorErrorReason | undefined =>
  isKnown(number) ? supervisorErrors[number] : undefined;

/** The supervisor answered one request with an error; the pipe goes on. */
export class SupervisorRefused extends SandboxError {
  readonly code = 'supervisor_refused';
  readonly next: NextStep;
  constructor(
    readonly reason: SupervisorErrorReason,
    message: string,
    /** Of the system call that failed, for `system`; 0 otherwise. */
    readonly errno: number,
    /** An offset or a size, for `gone`, `range`, `gap`, `stale_writer`. */
    readonly detail: number,
  ) {
    super(`the supervisor refused (${reason}): ${message}`);
    this.name = 'SupervisorRefused';
    this.next = reason === 'limit' ? 'retry' : 'refuse';
  }
}
