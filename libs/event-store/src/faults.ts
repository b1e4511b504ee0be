import { CallFailed } from './call';
import { AppendTooLarge, StoreRefused, StoreUnavailable, StreamDeleted } from './errors';
import { MalformedMessage } from './frames';

/** A call that did not end well: either it may be tried again, or it is one of our errors for good. */
export type Fault =
  | {
      readonly retry: true;
      readonly error: StoreUnavailable;
      /** The node to go to instead, when the one asked is not its cluster's leader. */
      readonly leader?: string;
    }
  | { readonly retry: false; readonly error: Error };

const INVALID_ARGUMENT = 3;
const PERMISSION_DENIED = 7;
const RESOURCE_EXHAUSTED = 8;
const FAILED_PRECONDITION = 9;
const OUT_OF_RANGE = 11;
const UNIMPLEMENTED = 12;
const UNAUTHENTICATED = 16;

export function faultOf(cause: unknown, stream: string): Fault {
  if (cause instanceof MalformedMessage) return final(cause);
  if (!(cause instanceof CallFailed))
    return { retry: true, error: unavailable(text(cause), cause) };
  const { status, details, trailers } = cause;
  switch (trailers.exception) {
    case 'stream-deleted':
      return final(new StreamDeleted(stream));
    case 'access-denied':
      return final(new StoreRefused('access_denied', details, { cause }));
    case 'maximum-append-size-exceeded':
      return final(new AppendTooLarge(Number(trailers['maximum-append-size'])));
    case 'not-leader': {
      const leader = `${trailers['leader-endpoint-host']}:${trailers['leader-endpoint-port']}`;
      return { retry: true, error: unavailable('the node is not the leader', cause), leader };
    }
  }
  switch (status) {
    case UNAUTHENTICATED:
    case PERMISSION_DENIED:
      return final(new StoreRefused('access_denied', details, { cause }));
    case RESOURCE_EXHAUSTED:
      return final(new StoreRefused('no_space', details, { cause }));
    case INVALID_ARGUMENT:
    case UNIMPLEMENTED:
    case FAILED_PRECONDITION:
    case OUT_OF_RANGE:
      return final(new StoreRefused('invalid', details, { cause }));
    default:
      return { retry: true, error: unavailable(details || `status ${status}`, cause) };
  }
}

const final = (error: Error): Fault => ({ retry: false, error });
const text = (cause: unknown): string =>
  typeof cause === 'object' && cause !== null && 'message' in cause
    ? String(cause.message)
    : String(cause);

export const unavailable = (reason: string, cause?: unknown): StoreUnavailable =>
  new StoreUnavailable(reason, cause === undefined ? undefined : { cause });
