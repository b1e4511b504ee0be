import { type ServiceError, status } from '@grpc/grpc-js';
import { AppendTooLarge, StoreRefused, StoreUnavailable, StreamDeleted } from './errors';

/** A call that did not end well: either it may be tried again, or it is one of our errors for good. */
export type Fault =
  | {
      readonly retry: true;
      readonly error: StoreUnavailable;
      /** The node to go to instead, when the one asked is not its cluster's leader. */
      readonly leader?: string;
    }
  | { readonly retry: false; readonly error: Error };

export function faultOf(cause: unknown, stream: string): Fault {
  if (!isServiceError(cause)) return { retry: true, error: unavailable(String(cause), cause) };
  const said = (name: string) => cause.metadata?.get(name)[0]?.toString();
  switch (said('exception')) {
    case 'stream-deleted':
      return final(new StreamDeleted(stream));
    case 'access-denied':
      return final(new StoreRefused('access_denied', cause.details, { cause }));
    case 'maximum-append-size-exceeded':
      return final(new AppendTooLarge(Number(said('maximum-append-size'))));
    case 'not-leader': {
      const leader = `${said('leader-endpoint-host')}:${said('leader-endpoint-port')}`;
      return { retry: true, error: unavailable('the node is not the leader', cause), leader };
    }
  }
  switch (cause.code) {
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return final(new StoreRefused('access_denied', cause.details, { cause }));
    case status.RESOURCE_EXHAUSTED:
      return final(new StoreRefused('no_space', cause.details, { cause }));
    case status.INVALID_ARGUMENT:
    case status.UNIMPLEMENTED:
    case status.FAILED_PRECONDITION:
    case status.OUT_OF_RANGE:
      return final(new StoreRefused('invalid', cause.details, { cause }));
    default:
      return { retry: true, error: unavailable(cause.details || cause.message, cause) };
  }
}

const final = (error: Error): Fault => ({ retry: false, error });

export const unavailable = (reason: string, cause?: unknown): StoreUnavailable =>
  new StoreUnavailable(reason, cause === undefined ? undefined : { cause });

const isServiceError = (cause: unknown): cause is ServiceError =>
  typeof cause === 'object' &&
  cause !== null &&
  'code' in cause &&
  typeof cause.code === 'number' &&
  'details' in cause;
