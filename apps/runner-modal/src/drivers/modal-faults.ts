import { DriverRefused, DriverUnavailable, SandboxError, SandboxGone } from '@vmux/runner-kit';
import {
  AlreadyExistsError,
  ConflictError,
  InvalidError,
  NotFoundError,
  ResourceExhaustedError,
} from 'modal';
import { ClientError, Status } from 'nice-grpc';

/** The SDK's errors end here; raw gRPC ones leak through it. */
export function translated(error: unknown): Error {
  if (error instanceof SandboxError) return error;
  const message = messageOf(error);
  const because = { cause: error };
  const code = error instanceof ClientError ? error.code : undefined;
  if (error instanceof AlreadyExistsError)
    return new DriverRefused('exists', 'the sandbox exists already', because);
  if (error instanceof NotFoundError || code === Status.NOT_FOUND)
    return new SandboxGone(`Modal has no such sandbox (${message})`, because);
  if (error instanceof ConflictError)
    return new SandboxGone(`the sandbox has finished (${message})`, because);
  if (error instanceof InvalidError || code === Status.INVALID_ARGUMENT)
    return new DriverRefused('invalid', message, because);
  if (code === Status.UNAUTHENTICATED || code === Status.PERMISSION_DENIED || isUnset(message))
    return new DriverUnavailable(
      `Modal refuses the token (${message}): set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET`,
      because,
    );
  if (error instanceof ResourceExhaustedError || code === Status.RESOURCE_EXHAUSTED)
    return new DriverUnavailable(`Modal has no capacity now (${message})`, because);
  if (/image build .* failed/i.test(message)) return new DriverRefused('invalid', message, because);
  return new DriverUnavailable(`Modal did not answer as expected (${message})`, because);
}

const isUnset = (message: string): boolean => /missing credentials/i.test(message);

export const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
