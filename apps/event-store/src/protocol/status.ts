/** The gRPC status codes that this server answers with. */
export const Status = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;
export type StatusCode = (typeof Status)[keyof typeof Status];

/** How a call ends. The trailers say to EventStoreDB's clients which of their errors it is. */
export class CallError extends Error {
  constructor(
    readonly status: StatusCode,
    message: string,
    readonly trailers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.name = 'CallError';
  }
}

export const MAX_APPEND_BYTES = 1024 * 1024;
export const NO_SPACE =
  "no space left on the event store's disk: nothing was stored, free some and append again";

export const streamDeleted = (stream: string): CallError =>
  new CallError(Status.FAILED_PRECONDITION, `Event stream '${stream}' is deleted.`, {
    exception: 'stream-deleted',
    'stream-name': stream,
  });

export const wrongExpectedVersion = (
  stream: string,
  expected: string,
  actual: number | 'no_stream',
): CallError =>
  new CallError(
    Status.FAILED_PRECONDITION,
    `Append failed due to WrongExpectedVersion. Stream: ${stream}, expected ${expected}, actual ${actual}`,
    {
      exception: 'wrong-expected-version',
      'stream-name': stream,
      'expected-version': expected,
      ...(actual === 'no_stream' ? {} : { 'actual-version': String(actual) }),
    },
  );

export const appendTooLarge = (): CallError =>
  new CallError(Status.INVALID_ARGUMENT, `Maximum Append Size of ${MAX_APPEND_BYTES} Exceeded.`, {
    exception: 'maximum-append-size-exceeded',
    'maximum-append-size': String(MAX_APPEND_BYTES),
  });

export const accessDenied = (): CallError =>
  new CallError(Status.UNAUTHENTICATED, 'the user name and password are not accepted', {
    exception: 'access-denied',
  });
