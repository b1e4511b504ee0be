import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../config';
import type { PreviewServer } from '../previews/preview-server';
import { ApiError } from './api-error';
import { isOurs, refuse, secure } from './hooks';
import { expectBodyWithin } from './slow-requests';
import { refuseUpgrade, type Upgrades } from './upgrades';

const REQUEST_TIMEOUT_MS = 300_000;
const HEADERS_TIMEOUT_MS = 20_000;
const KEEP_ALIVE_TIMEOUT_MS = 72_000;
const MAX_DEPTH = 32;
const TAKES_BYTES = /^\/v1\/(bundles\/|sessions\/[^/?]+\/(files([/?]|$)|execs\/[^/?]+\/stdin))/;

/** Fastify with bounds on everything that a client can make large or slow. */
export function httpAdapter({ limits }: Config, previews: PreviewsFirst): FastifyAdapter {
  return new FastifyAdapter({
    bodyLimit: limits.bodyBytes,
    serverFactory: (handle: RequestListener) =>
      createServer(
        {
          maxHeaderSize: limits.headerBytes,
          headersTimeout: HEADERS_TIMEOUT_MS,
          requestTimeout: 0,
          keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
          insecureHTTPParser: false,
        },
        (request, response) => {
          if (previews.takes(request, response)) return;
          if (!TAKES_BYTES.test(request.url ?? ''))
            expectBodyWithin(REQUEST_TIMEOUT_MS, request, response);
          handle(request, response);
        },
      ),
    routerOptions: { maxParamLength: 128 },
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    trustProxy: false,
    clientErrorHandler: (fault, socket) => answerUnreadable(fault, socket),
    frameworkErrors: (_fault: unknown, request: FastifyRequest, reply: FastifyReply) => {
      secure(request, reply);
      refuse(reply, new ApiError('invalid_request', 'the URL cannot be read'));
    },
  });
}

/** A name that is a preview's is never the API's, whatever is asked for under it. */
export class PreviewsFirst {
  private server: PreviewServer | null = null;

  use(server: PreviewServer): void {
    this.server = server;
  }

  takes(request: IncomingMessage, response: ServerResponse): boolean {
    const name = this.server?.nameOf(request) ?? null;
    if (name) void this.server?.serve(request, response, name);
    return name !== null;
  }

  takesUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    const name = this.server?.nameOf(request) ?? null;
    if (name) void this.server?.serveUpgrade(request, socket, head, name);
    return name !== null;
  }
}

export function configureServer(
  fastify: FastifyInstance,
  config: Config,
  previews: PreviewsFirst,
  upgrades: Upgrades,
): void {
  fastify.server.maxConnections = config.limits.connections;
  fastify.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    if (previews.takesUpgrade(request, socket, head)) return;
    const refused = foreign(request, config);
    if (refused) refuseUpgrade(socket, refused);
    else upgrades.handle(request, socket, head);
  });
  const parse = fastify.getDefaultJsonParser('error', 'error');
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined);
    else if (isTooDeep(String(body)))
      done(new ApiError('invalid_request', `a body is nested at most ${MAX_DEPTH} deep`));
    else
      parse(request, String(body), (fault, value) => {
        const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
        if (fault || isObject) done(fault, value);
        else done(new ApiError('invalid_request', 'a body is a JSON object'));
      });
  });
  // Only where bytes are wanted; they are not read before the endpoint asks for them.
  fastify.addContentTypeParser('application/octet-stream', (request, payload, done) => {
    if (TAKES_BYTES.test(request.url)) done(null, payload);
    else done(new ApiError('unsupported_media_type', 'this endpoint takes application/json'));
  });
}

/** Looked at before it is parsed: what walks the value later goes as deep as the value does. */
function isTooDeep(json: string): boolean {
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < json.length; at += 1) {
    const char = json[at];
    if (quoted && char === '\\') at += 1;
    else if (char === '"') quoted = !quoted;
    else if (!quoted && (char === '{' || char === '[')) depth += 1;
    else if (!quoted && (char === '}' || char === ']')) depth -= 1;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

/** Bytes that are no HTTP request, or a header that is too long: no route ever sees them. */
function answerUnreadable(fault: NodeJS.ErrnoException, socket: Duplex): void {
  if (fault.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const code = fault.code === 'HPE_HEADER_OVERFLOW' ? 'headers_too_large' : 'invalid_request';
  refuseUpgrade(socket, new ApiError(code, 'the request cannot be read'));
}

/** A page of another site must not open a WebSocket here with what a browser knows. */
function foreign({ headers }: IncomingMessage, { hostnames }: Config): ApiError | null {
  const { host, origin } = headers;
  if (!isOurs(host, hostnames)) return new ApiError('misdirected', 'not by this name');
  if (origin === undefined || isSameOrigin(origin, host)) return null;
  return new ApiError('forbidden', 'not from this origin');
}

export function isSameOrigin(origin: string, host: string | undefined): boolean {
  try {
    return new URL(origin).host === host?.toLowerCase();
  } catch {
    return false;
  }
}
