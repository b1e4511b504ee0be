import { type ArgumentsHost, Catch, type ExceptionFilter, Inject } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { LOGGER } from '../tokens';
import { type ApiError, ERRORS } from './api-error';
import { apiErrorOf } from './translate';

export interface ErrorBody {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export const bodyOf = ({ code, message, hint, details }: ApiError): ErrorBody => ({
  code,
  message,
  hint: hint ?? ERRORS[code][1],
  details,
});

/** Every error leaves through here, in one shape. */
@Catch()
export class ErrorFilter implements ExceptionFilter {
  constructor(@Inject(LOGGER) private readonly logger: Logger) {}

  catch(fault: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const reply = http.getResponse<FastifyReply>();
    const request = http.getRequest<FastifyRequest>();
    const error = apiErrorOf(fault);
    const [status] = ERRORS[error.code];
    if (status >= 500) {
      const level = status === 500 ? 'error' : 'warn';
      this.logger[level](
        { requestId: request.id, code: error.code, err: error.cause ?? error },
        error.message,
      );
    }
    if (reply.sent) {
      // Half of an answer is out: a cut connection says so, a clean end would not.
      reply.raw.destroy();
      return;
    }
    if (error.retryAfterSeconds !== null) reply.header('retry-after', error.retryAfterSeconds);
    // A body that was begun and given up is read by nobody: the next request would wait behind it.
    if (request.raw.readableDidRead && !request.raw.readableEnded)
      reply.header('connection', 'close');
    if (status === 401) reply.header('www-authenticate', 'Bearer realm="vmux"');
    reply
      .status(status)
      .header('content-type', 'application/json; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(JSON.stringify(bodyOf(error)));
  }
}
