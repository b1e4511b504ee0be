/** The stream is not at the expected revision: read again and decide again. */
export class WrongRevision extends Error {
  readonly code = 'wrong_revision';
  constructor(
    readonly stream: string,
    readonly expected: number | 'none' | 'any',
    readonly actual: number | 'none',
  ) {
    super(`${stream} is at revision ${actual}, not ${expected}: read it again and decide again`);
    this.name = 'WrongRevision';
  }
}

/** The outcome is not known: the same call, with the same event ids, is safe to repeat. */
export class StoreUnavailable extends Error {
  readonly code = 'store_unavailable';
  constructor(reason: string, options?: ErrorOptions) {
    super(
      `the event store does not answer (${reason}): repeat the call with the same event ids`,
      options,
    );
    this.name = 'StoreUnavailable';
  }
}

/** More than one append may carry. Nothing was stored. */
export class AppendTooLarge extends Error {
  readonly code = 'append_too_large';
  constructor(readonly maxBytes: number) {
    super(`an append may carry ${maxBytes} bytes: split it`);
    this.name = 'AppendTooLarge';
  }
}

export class StreamNotFound extends Error {
  readonly code = 'stream_not_found';
  constructor(readonly stream: string) {
    super(`${stream} has no events`);
    this.name = 'StreamNotFound';
  }
}

/** The stream was deleted for ever: its name can never be used again. */
export class StreamDeleted extends Error {
  readonly code = 'stream_deleted';
  constructor(readonly stream: string) {
    super(`${stream} was deleted for ever`);
    this.name = 'StreamDeleted';
  }
}

/** The store refuses for good: bad credentials, no room on its disk, a malformed request. */
export class StoreRefused extends Error {
  readonly code = 'store_refused';
  constructor(
    readonly reason: 'access_denied' | 'no_space' | 'invalid',
    detail: string,
    options?: ErrorOptions,
  ) {
    super(`the event store refused the call (${reason}): ${detail}`, options);
    this.name = 'StoreRefused';
  }
}
