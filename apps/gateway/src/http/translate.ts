import { HttpException } from '@nestjs/common';
import { ArtifactTooLarge, DigestMismatch, UploadGap, UploadOverrun } from '@vmux/artifacts';
import { StoreRefused, StoreUnavailable, StreamDeleted } from '@vmux/event-store';
import { Failure, Malformed, Refusal, type RefusalCode, type RefusalFacts } from '@vmux/events';
import { KeyDestroyed } from '@vmux/key-store';
import { BusTimeout, BusUnavailable, MalformedMessage } from '@vmux/messaging';
import { AnswerLost } from '../application/commander';
import { RevisionPastEnd } from '../application/history-reader';
import { OffsetPastEnd } from '../application/log-reader';
import { IndexBehind, IndexUnavailable } from '../application/session-index';
import { ApiError } from './api-error';
import { ofTunnel } from './tunnel-faults';

const RETRY_SECONDS = 1;

/** Whatever was thrown, as what a client is told. Only our own words reach it. */
export function apiErrorOf(fault: unknown): ApiError {
  if (fault instanceof ApiError) return fault;
  if (fault instanceof Refusal) return ofRefusal(fault);
  if (fault instanceof Failure) return ofFailure(fault);
  if (fault instanceof Malformed) return new ApiError('malformed', fault.message);
  if (fault instanceof BusUnavailable)
    return unavailable('messaging_unavailable', 'no session service can be reached', fault);
  if (
    fault instanceof BusTimeout ||
    fault instanceof MalformedMessage ||
    fault instanceof AnswerLost
  )
    return outcomeUnknown(fault);
  if (fault instanceof StoreUnavailable || fault instanceof StoreRefused)
    return unavailable('store_unavailable', 'the event store does not answer', fault);
  if (fault instanceof IndexBehind) return unavailable('index_behind', fault.message, fault);
  if (fault instanceof IndexUnavailable)
    return unavailable('index_unavailable', fault.message, fault);
  if (fault instanceof OffsetPastEnd)
    return new ApiError('offset_past_end', fault.message, null, { size: fault.size });
  if (fault instanceof RevisionPastEnd)
    return new ApiError('revision_past_end', fault.message, null, { last: fault.last });
  if (fault instanceof DigestMismatch)
    return new ApiError('digest_mismatch', fault.message, null, { actual: fault.actual });
  if (fault instanceof ArtifactTooLarge)
    return new ApiError('body_too_large', fault.message, null, { maxBytes: fault.maxBytes });
  if (fault instanceof UploadGap)
    return new ApiError('upload_gap', fault.message, null, { offset: fault.offset });
  if (fault instanceof UploadOverrun) return new ApiError('invalid_request', fault.message);
  if (fault instanceof KeyDestroyed || fault instanceof StreamDeleted)
    return new ApiError('session_deleted', 'the session was deleted', null, {}, null, cause(fault));
  return ofTunnel(fault) ?? ofFramework(fault);
}

const cause = (fault: unknown): ErrorOptions => ({ cause: fault });

const unavailable = (
  code: 'messaging_unavailable' | 'store_unavailable' | 'index_behind' | 'index_unavailable',
  message: string,
  fault: unknown,
): ApiError => new ApiError(code, message, null, {}, RETRY_SECONDS, cause(fault));

const outcomeUnknown = (fault: unknown): ApiError =>
  new ApiError(
    'outcome_unknown',
    'the request was sent and no answer came: it may have been carried out',
    null,
    {},
    RETRY_SECONDS,
    cause(fault),
  );

const ofRefusal = ({ code, message, facts }: Refusal): ApiError =>
  new ApiError(code, message, null, facts, retrySecondsOf(code, facts));

function retrySecondsOf(code: RefusalCode, { retryAfterMs }: RefusalFacts): number | null {
  if (typeof retryAfterMs === 'number') return Math.ceil(retryAfterMs / 1000);
  return code === 'no_placement' ? RETRY_SECONDS : null;
}

function ofFailure(failure: Failure): ApiError {
  const { code, message, retryAfterMs } = failure;
  // Said by a session service that had begun: the append may have gone through.
  if (code === 'store_unavailable') return outcomeUnknown(failure);
  const seconds = Math.max(RETRY_SECONDS, Math.ceil((retryAfterMs ?? 0) / 1000));
  return new ApiError(code, message, null, {}, seconds, cause(failure));
}

/** Errors of Fastify and Nest: their status is kept where we know it, their words are not. */
function ofFramework(fault: unknown): ApiError {
  const status = statusOf(fault);
  if (status === 413) return new ApiError('body_too_large', 'the body is too large');
  if (status === 415)
    return new ApiError('unsupported_media_type', 'this endpoint does not take this content type');
  if (status === 404) return new ApiError('not_found', 'there is nothing here');
  if (status === 405) return new ApiError('method_not_allowed', 'this path does not take this');
  if (status === 431) return new ApiError('headers_too_large', 'the headers are too large');
  if (status !== null && status >= 400 && status < 500)
    return new ApiError(
      'invalid_request',
      'the request cannot be read',
      null,
      {},
      null,
      cause(fault),
    );
  return new ApiError('internal', 'something went wrong here', null, {}, null, cause(fault));
}

function statusOf(fault: unknown): number | null {
  if (fault instanceof HttpException) return fault.getStatus();
  if (fault instanceof Error && 'statusCode' in fault && typeof fault.statusCode === 'number')
    return fault.statusCode;
  return null;
}
