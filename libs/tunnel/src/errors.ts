/** The runner answered: not this stream. The connection goes on. */
export class TunnelRefused extends Error {
  constructor(
    readonly code: RefusedCode,
    message: string,
    readonly facts: RefusedFacts = {},
  ) {
    super(message);
    this.name = 'TunnelRefused';
  }
}

export const REFUSED_CODES = [
  /** The request itself is wrong. */
  'invalid',
  /** This runner does not have that sandbox, or has another instance of it. */
  'stale_sandbox',
  /** Nothing was done: the same may succeed shortly. */
  'unavailable',
  /** It broke off: what was sent last may or may not have been taken. */
  'interrupted',
  /** Too much is open at once. */
  'limit',
  'exec_not_found',
  'exec_ended',
  'no_stdin',
  'no_terminal',
  /** `expected` is the offset that comes next. */
  'input_gap',
  /** `smallest` is the smallest writer that is still taken. */
  'stale_writer',
  /** `errno` says which, such as ENOENT. */
  'file_error',
  /** An archive that reaches outside its target. */
  'archive_unsafe',
  'port_refused',
  'stopping',
  'internal',
] as const;
export type RefusedCode = (typeof REFUSED_CODES)[number];
export type RefusedFacts = Readonly<Record<string, string | number>>;

/** There is no connection to the runner and none can be made: nothing was done. */
export class TunnelUnreachable extends Error {
  constructor(detail: string, options?: ErrorOptions) {
    super(`the runner cannot be reached (${detail})`, options);
    this.name = 'TunnelUnreachable';
  }
}

/** The connection broke while the stream was open: what was sent last may or may not have been taken. */
export class TunnelBroken extends Error {
  constructor(detail: string, options?: ErrorOptions) {
    super(`the connection to the runner broke (${detail})`, options);
    this.name = 'TunnelBroken';
  }
}

/** The other side gave the stream up. */
export class StreamCancelled extends Error {
  constructor() {
    super('the stream was given up by the other end');
    this.name = 'StreamCancelled';
  }
}

/** The other end does not keep to the protocol: the connection ends, nothing else does. */
export class MalformedFrame extends Error {
  constructor(detail: string) {
    super(`a frame is malformed: ${detail}`);
    this.name = 'MalformedFrame';
  }
}
