import { randomUUID } from 'node:crypto';
import { traceFrom } from '@vmux/messaging';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import type { Config } from '../config';
import { ApiError, ERRORS } from './api-error';
import { bodyOf } from './error.filter';
import type { Metrics } from './metrics';
import { knownOf, maybeKnown, pathOf, remember } from './request-context';

const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;
const CHANGES = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

/** Everything that holds for every request, before any route. */
export function installHooks(
  fastify: FastifyInstance,
  config: Config,
  logger: Logger,
  metrics: Metrics,
): void {
  fastify.addHook('onRequest', (request, reply, done) => {
    const requestId = requestIdOf(request);
    const trace = traceFrom(requestId, headerOf(request, 'traceparent'));
    const traceparent = trace?.traceparent ?? null;
    remember(request, { requestId, traceparent, clientKey: '', caller: null });
    reply.header('x-request-id', requestId);
    secure(request, reply);
    const refused = misdirected(request, config) ?? badKey(request, reply);
    if (refused) refuse(reply, refused);
    else done();
  });
  fastify.addHook('onResponse', (request, reply, done) => {
    const { requestId, caller } = maybeKnown(request) ?? {};
    const route = request.routeOptions.url ?? 'unknown';
    const { method } = request;
    const { statusCode: status } = reply;
    const ms = Math.round(reply.elapsedTime * 10) / 10;
    metrics.observe(method, route, status, reply.elapsedTime);
    // The route, never the URL: what stands in a URL may be a ticket.
    const line = { requestId, method, route, status, ms, key: caller?.keyId };
    logger[route.startsWith('/health') ? 'debug' : 'info'](line, 'request');
    done();
  });
}

export function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function requestIdOf(request: FastifyRequest): string {
  const given = headerOf(request, 'x-request-id');
  return traceFrom(given)?.requestId ?? randomUUID();
}

/** The page under /docs runs its own scripts and nobody else's. */
const DOCS_POLICY =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'";
const POLICY = "default-src 'none'; frame-ancestors 'none'";

export function secure(request: FastifyRequest, reply: FastifyReply): void {
  reply
    .header('x-content-type-options', 'nosniff')
    .header('x-frame-options', 'DENY')
    .header('referrer-policy', 'no-referrer')
    .header('cross-origin-resource-policy', 'same-origin')
    .header('cross-origin-opener-policy', 'same-origin')
    .header('content-security-policy', pathOf(request).startsWith('/docs') ? DOCS_POLICY : POLICY)
    .header('cache-control', 'no-store');
}

/** A page of another site that resolves its own name to this address is not served (DNS rebinding). */
function misdirected(request: FastifyRequest, config: Config): ApiError | null {
  if (isOurs(headerOf(request, 'host'), config.hostnames)) return null;
  return new ApiError('misdirected', 'this gateway does not go by the name in the Host header');
}

export function isOurs(host: string | undefined, hostnames: readonly string[]): boolean {
  const name = host?.toLowerCase().replace(/:\d{1,5}$/, '');
  if (!name) return false;
  return hostnames.some((ours) =>
    ours.startsWith('*.') ? name.endsWith(ours.slice(1)) && name !== ours.slice(1) : name === ours,
  );
}

function badKey(request: FastifyRequest, reply: FastifyReply): ApiError | null {
  if (!CHANGES.has(request.method)) return null;
  const given = request.headers['idempotency-key'];
  const clientKey = given === undefined ? randomUUID() : given;
  if (typeof clientKey !== 'string' || !IDEMPOTENCY_KEY.test(clientKey))
    return new ApiError('invalid_request', 'Idempotency-Key is 1 to 255 visible characters');
  knownOf(request).clientKey = clientKey;
  reply.header('idempotency-key', clientKey);
  return null;
}

export function refuse(reply: FastifyReply, error: ApiError): void {
  reply
    .status(ERRORS[error.code][0])
    .header('content-type', 'application/json; charset=utf-8')
    .send(JSON.stringify(bodyOf(error)));
}
