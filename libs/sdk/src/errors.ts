import type { ErrorCode, KnownErrorCode } from './error-codes';

/** What the API refused or could not do, with a stable code to branch on. */
export class VmuxError extends Error {
  override readonly name: string = 'VmuxError';

  constructor(
    /** Stable, such as `session_not_found`; the message may change, the code does not. */
    readonly code: ErrorCode,
    message: string,
    /** What to do about it; null when nothing better is known. */
    readonly hint: string | null = null,
    /** The HTTP status; 0 when no answer came. */
    readonly status: number = 0,
    /** Whether the same request, with the same key, may succeed later. */
    readonly retryable: boolean = false,
    /** The facts, as the API gave them. */
    readonly details: Readonly<Record<string, unknown>> = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** Whether a fault is one of these: `if (VmuxError.is(fault, 'file_not_found')) …` */
  static is<C extends KnownErrorCode>(
    fault: unknown,
    ...codes: readonly C[]
  ): fault is VmuxError & { readonly code: C } {
    return fault instanceof VmuxError && (codes as readonly string[]).includes(fault.code);
  }
}

/** No server answered, or its answer was cut. Nothing is known about what became of the request. */
export class ConnectionFailed extends VmuxError {
  override readonly name = 'ConnectionFailed';

  constructor(
    readonly url: string,
    cause: unknown,
  ) {
    super(
      'connection_failed',
      `${url} does not answer (${reasonOf(cause)})`,
      'check that the server runs and that the URL is right',
      0,
      true,
      {},
      { cause },
    );
  }
}

const passing = new Set([
  'store_unavailable',
  'messaging_unavailable',
  'index_behind',
  'index_unavailable',
  'conflict',
  'overloaded',
  'rate_limited',
  'outcome_unknown',
  'no_placement',
  'runner_unreachable',
]);

/** From the body of an answer, or of an `error` event; what is not in the API's shape is told as such. */
export function errorFrom(body: unknown, status: number): VmuxError {
  const { code, message, hint, details } = (
    typeof body === 'object' && body !== null ? body : {}
  ) as Record<string, unknown>;
  if (typeof code !== 'string' || typeof message !== 'string')
    return new VmuxError(
      'unexpected_answer',
      `the server answered ${status} in a shape that this client does not know`,
      'check that the URL is that of a vmux gateway',
      status,
      status === 502 || status === 503 || status === 504,
    );
  const facts = typeof details === 'object' && details !== null ? details : {};
  return new VmuxError(
    code,
    message,
    typeof hint === 'string' ? hint : null,
    status,
    passing.has(code),
    facts as Readonly<Record<string, unknown>>,
  );
}

function reasonOf(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault);
  const { cause } = fault;
  const inner = cause instanceof AggregateError ? cause.errors[0] : cause;
  if (inner instanceof Error)
    return (inner as NodeJS.ErrnoException).code ?? (inner.message || fault.message);
  return fault.message;
}
