import type { FailureCode, RefusalCode } from '@vmux/events';

export type ErrorCode = RefusalCode | FailureCode | EdgeCode;

/** What can be wrong before a command is sent, or while an answer is read. */
export type EdgeCode =
  | 'invalid_request'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'misdirected'
  | 'rate_limited'
  | 'too_many_followers'
  | 'body_too_large'
  | 'headers_too_large'
  | 'unsupported_media_type'
  | 'bundle_not_found'
  | 'digest_mismatch'
  | 'upload_gap'
  | 'range_past_end'
  | 'api_key_not_found'
  | 'offset_past_end'
  | 'revision_past_end'
  | 'index_behind'
  | 'index_unavailable'
  | 'runner_unreachable'
  | 'tunnel_broken'
  | 'no_stdin'
  | 'no_terminal'
  | 'input_gap'
  | 'stale_writer'
  | 'port_refused'
  | 'file_not_found'
  | 'file_forbidden'
  | 'file_conflict'
  | 'file_no_space'
  | 'file_failed'
  | 'archive_unsafe'
  | 'outcome_unknown';

export type Details = Readonly<Record<string, unknown>>;

/** What a client is told: a stable code, what happened, what to do about it, and the facts. */
export class ApiError extends Error {
  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly hint: string | null = null,
    readonly details: Details = {},
    readonly retryAfterSeconds: number | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'ApiError';
  }
}

/** Every code, its status, and what to do when nothing better is known. */
export const ERRORS: Readonly<Record<ErrorCode, readonly [status: number, hint: string]>> = {
  invalid_request: [400, 'see /docs for what this endpoint takes'],
  malformed: [400, 'see /docs for what this endpoint takes'],
  invalid_name: [400, 'use lower case letters, digits and single dashes'],
  reserved_name: [400, 'choose another name'],
  unauthorized: [401, 'send Authorization: Bearer vmux_<id>_<secret>'],
  forbidden: [403, 'use an API key that has the scope'],
  file_forbidden: [403, 'choose another path, or another user of the sandbox'],
  not_found: [404, 'see /docs for what there is'],
  session_not_found: [404, 'list your sessions with GET /v1/sessions'],
  exec_not_found: [404, 'list the execs of the session'],
  file_not_found: [404, 'list the directory with GET /v1/sessions/<id>/files/list?path='],
  checkpoint_not_found: [404, 'list the checkpoints of the session'],
  fork_not_found: [404, 'see the history of the session'],
  share_not_found: [404, 'see the session for its shares'],
  bundle_not_found: [404, 'upload it first with PUT /v1/bundles/<sha256>'],
  api_key_not_found: [404, 'list the keys with GET /v1/api-keys'],
  method_not_allowed: [405, 'see /docs for what this path takes'],
  name_taken: [409, 'choose another name'],
  id_taken: [409, 'use a new Idempotency-Key'],
  session_behind: [409, 'try again shortly'],
  session_ended: [409, 'create a new session'],
  session_live: [409, 'stop it first, or delete with force'],
  operation_underway: [409, 'wait until it is done'],
  not_running: [409, 'see the status of the session'],
  exec_ended: [409, 'see its exit'],
  no_stdin: [409, 'run it with "stdin": true or with a terminal'],
  no_terminal: [409, 'run it with a terminal'],
  upload_gap: [409, 'ask where to go on with GET /v1/bundles/<sha256>/upload'],
  input_gap: [409, 'send from the offset that is expected'],
  stale_writer: [409, 'use a writer that is greater, such as the time in microseconds'],
  file_conflict: [409, 'see what is there with GET /v1/sessions/<id>/files/stat?path='],
  checkpoint_unusable: [409, 'use another checkpoint'],
  too_early: [409, 'try again later'],
  nothing_to_do: [409, 'see the status of the session'],
  stale_epoch: [409, 'read the session again'],
  wrong_runner: [409, 'read the session again'],
  out_of_order: [409, 'read the session again'],
  log_behind: [409, 'try again shortly'],
  log_open: [409, 'try again shortly'],
  log_closed: [409, 'read the session again'],
  log_full: [409, 'raise the log budget of the session'],
  output_gap: [409, 'read the session again'],
  session_deleted: [410, 'its id is never used again: create a new session'],
  body_too_large: [413, 'send less'],
  unsupported_media_type: [415, 'send application/json'],
  range_past_end: [416, 'ask for bytes that are there'],
  offset_past_end: [416, 'read from an offset up to the size, or follow'],
  revision_past_end: [416, 'read from a revision up to the last, or follow'],
  misdirected: [421, 'call the gateway by one of its configured names (VMUX_HOSTNAMES)'],
  key_reused: [422, 'use a new Idempotency-Key for another request'],
  digest_mismatch: [422, 'upload it again, under its own digest'],
  not_supported: [422, 'use a provider that can'],
  archive_unsafe: [422, 'leave out entries that lead outside the directory'],
  file_failed: [422, 'see the error of the sandbox in the details'],
  too_many: [429, 'end some of them first'],
  too_many_keys: [429, 'nothing was done: wait, or go on in another session'],
  rate_limited: [429, 'send fewer requests'],
  too_many_followers: [429, 'close some of the open streams'],
  quota_exceeded: [429, 'stop a session with POST /v1/sessions/<id>/stop'],
  headers_too_large: [431, 'send smaller headers'],
  internal: [500, 'report it with the request id; repeat it with the same Idempotency-Key'],
  port_refused: [502, 'start a server that listens on the port'],
  tunnel_broken: [
    502,
    'repeat it: input of the same writer and offset is taken once, a file is written whole or not at all',
  ],
  runner_unreachable: [503, 'nothing was done: try again shortly'],
  no_placement: [503, 'nothing was done: start a runner for the provider, or try again'],
  store_unavailable: [503, 'nothing was done: try again shortly'],
  messaging_unavailable: [503, 'nothing was done: try again shortly'],
  index_behind: [503, 'ask again shortly'],
  index_unavailable: [503, 'ask again shortly: sessions can be used all the same'],
  conflict: [503, 'nothing was done: try again'],
  no_space: [503, 'nothing was done: make room on the disk of the event store'],
  overloaded: [503, 'nothing was done: try again shortly'],
  unknown_event: [503, 'nothing was done: upgrade the session service'],
  file_no_space: [507, 'make room in the sandbox, or give it a larger disk'],
  outcome_unknown: [504, 'repeat the request with the same Idempotency-Key to learn its outcome'],
};
