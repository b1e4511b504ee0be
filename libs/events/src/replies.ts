import { Failure, type FailureCode, Refusal, type RefusalCode, type RefusalFacts } from './errors';
import type { StoredEvent } from './history';
import type { Sizes } from './values';

/** The answer to a command: where in the history it stands, the first time and every time after. */
export interface CommandAccepted {
  readonly ok: true;
  readonly sessionId: string;
  /** Of the first and the last event that the command caused, by its key. */
  readonly firstRevision: number;
  readonly revision: number;
  /** In the whole store, as a decimal string: lists take it as `after`. */
  readonly position: string;
  /** True when the key had been used before and nothing was appended now. */
  readonly repeated: boolean;
  /** The events themselves, from `firstRevision` on; without it they are gone or have to be read. */
  readonly events?: readonly CausedEvent[];
}

export type CausedEvent = Omit<StoredEvent, 'revision'>;

/** The answer to a report: its events, if it caused any, are durable. */
export interface ReportAccepted {
  readonly ok: true;
  readonly revision: number;
}

/** The answer to output: everything before these offsets is durable. */
export interface OutputAccepted {
  readonly ok: true;
  readonly next: Readonly<Record<string, Sizes>>;
  /** Why the rest of the frame was not taken. */
  readonly refused: RefusedBody | null;
}

export interface RefusedBody {
  readonly code: RefusalCode;
  readonly message: string;
  readonly facts: RefusalFacts;
}

export interface Refused {
  readonly ok: false;
  readonly refused: RefusedBody;
}

export interface Failed {
  readonly ok: false;
  readonly failed: {
    readonly code: FailureCode;
    readonly message: string;
    readonly retry: boolean;
    readonly retryAfterMs: number | null;
  };
}

export type CommandReply = CommandAccepted | Refused | Failed;
export type ReportReply = ReportAccepted | Refused | Failed;
export type OutputReply = OutputAccepted | Refused | Failed;

/** On the wire. Anything that is neither a refusal nor a failure says only that it went wrong. */
export function replyOf(error: unknown): Refused | Failed {
  if (error instanceof Refusal) {
    const { code, message, facts } = error;
    return { ok: false, refused: { code, message, facts } };
  }
  const { code, message, retry, retryAfterMs } =
    error instanceof Failure
      ? error
      : new Failure('internal', 'something went wrong: try again with the same key', true);
  return { ok: false, failed: { code, message, retry, retryAfterMs } };
}

/** Back from the wire: returns what was accepted, throws what was not. */
export function accepted<A extends { readonly ok: true }>(reply: A | Refused | Failed): A {
  if (reply.ok) return reply;
  if ('refused' in reply)
    throw new Refusal(reply.refused.code, reply.refused.message, reply.refused.facts);
  const { code, message, retry, retryAfterMs } = reply.failed;
  throw new Failure(code, message, retry, retryAfterMs);
}
