import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';
import type { Asking } from '../application/commander';
import type { Caller } from '../application/key-ring';
import { ApiError } from './api-error';

/** What hooks and the guard learn about a request before a controller sees it. */
export interface Known {
  requestId: string;
  traceparent: string | null;
  clientKey: string;
  caller: Caller | null;
}

const known = new WeakMap<FastifyRequest['raw'], Known>();

export const remember = (request: FastifyRequest, what: Known): void => {
  known.set(request.raw, what);
};

/** Undefined for what Fastify refuses before any hook. */
export const maybeKnown = (request: FastifyRequest): Known | undefined => known.get(request.raw);

export function knownOf(request: FastifyRequest): Known {
  const found = known.get(request.raw);
  if (!found) throw new Error('the request came past the hooks');
  return found;
}

export const pathOf = (request: FastifyRequest): string => request.url.split('?', 1)[0] ?? '';

const requestOf = (context: ExecutionContext): FastifyRequest =>
  context.switchToHttp().getRequest<FastifyRequest>();

function callerOf(request: FastifyRequest): Caller {
  const { caller } = knownOf(request);
  if (!caller) throw new ApiError('unauthorized', 'this endpoint needs an API key');
  return caller;
}

/** Who asks. */
export const By = createParamDecorator(
  (_: unknown, context: ExecutionContext): Caller => callerOf(requestOf(context)),
);

/** Who asks for a change, and under which key. */
export const Asked = createParamDecorator((_: unknown, context: ExecutionContext): Asking => {
  const request = requestOf(context);
  const { requestId, traceparent, clientKey } = knownOf(request);
  const operation = `${request.method} ${pathOf(request)}`;
  return { caller: callerOf(request), operation, clientKey, requestId, traceparent };
});
