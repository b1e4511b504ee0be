import { TunnelBroken, TunnelRefused, TunnelUnreachable } from '@vmux/tunnel';
import { ApiError, type ErrorCode } from './api-error';

const RETRY_SECONDS = 1;

/** What went wrong between here and a sandbox; null for anything else. */
export function ofTunnel(fault: unknown): ApiError | null {
  if (fault instanceof TunnelUnreachable)
    return again('runner_unreachable', 'the runner of the session cannot be reached', fault);
  if (fault instanceof TunnelBroken)
    return again('tunnel_broken', 'the connection to the runner broke', fault);
  return fault instanceof TunnelRefused ? ofRefused(fault) : null;
}

const again = (code: ErrorCode, message: string, cause: unknown): ApiError =>
  new ApiError(code, message, null, {}, RETRY_SECONDS, { cause });

function ofRefused(refused: TunnelRefused): ApiError {
  const { code, facts } = refused;
  switch (code) {
    case 'invalid':
      return new ApiError('invalid_request', 'the sandbox does not take this');
    case 'stale_sandbox':
      return again('stale_epoch', 'the sandbox has been replaced meanwhile', refused);
    case 'unavailable':
      return again('runner_unreachable', 'the sandbox does not answer now', refused);
    case 'interrupted':
      return again('tunnel_broken', 'the connection to the sandbox broke', refused);
    case 'limit':
      return again('overloaded', 'the sandbox has too much open at once', refused);
    case 'exec_not_found':
      return again('not_running', 'the exec has not started', refused);
    case 'exec_ended':
      return new ApiError('exec_ended', 'the exec has ended');
    case 'no_stdin':
      return new ApiError('no_stdin', 'the exec takes no input, or its input has ended');
    case 'no_terminal':
      return new ApiError('no_terminal', 'the exec has no terminal');
    case 'input_gap':
      return new ApiError('input_gap', 'bytes before these are missing', null, facts);
    case 'stale_writer':
      return new ApiError('stale_writer', 'newer writers have taken its place', null, facts);
    case 'file_error':
      return ofErrno(refused);
    case 'archive_unsafe':
      return new ApiError('archive_unsafe', 'the archive reaches outside the directory');
    case 'port_refused':
      return new ApiError('port_refused', 'nothing listens on the port', null, facts);
    case 'stopping':
      return new ApiError('not_running', 'the sandbox is stopping');
    case 'internal':
      return new ApiError('internal', 'something went wrong in the runner', null, {}, null, {
        cause: refused,
      });
  }
}

const ERRNO: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  ENOENT: ['file_not_found', 'there is no such file'],
  EACCES: ['file_forbidden', 'the user of the sandbox may not do this'],
  EPERM: ['file_forbidden', 'the user of the sandbox may not do this'],
  EROFS: ['file_forbidden', 'this part of the sandbox cannot be changed'],
  EEXIST: ['file_conflict', 'there is a file of that name'],
  ENOTEMPTY: ['file_conflict', 'the directory is not empty'],
  EISDIR: ['file_conflict', 'it is a directory'],
  ENOTDIR: ['file_conflict', 'a part of the path is not a directory'],
  EBUSY: ['file_conflict', 'it is in use'],
  ENOSPC: ['file_no_space', 'the disk of the sandbox is full'],
  EDQUOT: ['file_no_space', 'the disk of the sandbox is full'],
  ENOMEM: ['file_no_space', 'the memory of the sandbox is used up'],
  ENAMETOOLONG: ['invalid_request', 'the path is too long'],
  ELOOP: ['invalid_request', 'the path leads through a link that is not followed'],
  EINVAL: ['invalid_request', 'the sandbox does not take this'],
  ERANGE: ['offset_past_end', 'the file is shorter'],
};

function ofErrno({ facts }: TunnelRefused): ApiError {
  const errno = String(facts.errno);
  const known = Object.hasOwn(ERRNO, errno) ? ERRNO[errno] : undefined;
  const [code, message] = known ?? ['file_failed', 'the sandbox could not do it'];
  return new ApiError(code, message, null, facts);
}
