/** Why a command or a report is refused. A refusal is final: the same request is refused again. */
export type RefusalCode =
  // about names and keys
  | 'invalid_name'
  | 'reserved_name'
  | 'name_taken'
  | 'id_taken'
  | 'key_reused'
  // about sessions
  | 'session_not_found'
  | 'session_ended'
  | 'session_live'
  | 'session_deleted'
  | 'operation_underway'
  | 'not_running'
  | 'not_supported'
  | 'no_placement'
  | 'nothing_to_do'
  | 'too_many'
  | 'too_many_keys'
  // about what belongs to a session
  | 'exec_not_found'
  | 'exec_ended'
  | 'checkpoint_not_found'
  | 'checkpoint_unusable'
  | 'fork_not_found'
  | 'share_not_found'
  | 'too_early'
  // about reports
  | 'stale_epoch'
  | 'wrong_runner'
  | 'out_of_order'
  // between the session's stream and its log
  | 'log_behind'
  | 'log_open'
  | 'log_closed'
  | 'log_full'
  | 'output_gap'
  | 'session_behind'
  // about admission
  | 'quota_exceeded'
  | 'malformed';

export type RefusalFacts = Readonly<
  Record<string, string | number | boolean | null | readonly string[]>
>;

/** The request was understood and is not allowed. Nothing was appended and no key was bound. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  constructor(
    readonly code: RefusalCode,
    message: string,
    readonly facts: RefusalFacts = {},
  ) {
    super(message);
  }
}

export type FailureCode =
  | 'store_unavailable'
  | 'messaging_unavailable'
  | 'conflict'
  | 'no_space'
  | 'overloaded'
  | 'unknown_event'
  | 'internal';

/** It could not be tried to the end. `retry` says whether the same request, with the same key, may help. */
export class Failure extends Error {
  override readonly name = 'Failure';
  constructor(
    readonly code: FailureCode,
    message: string,
    readonly retry: boolean,
    readonly retryAfterMs: number | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
