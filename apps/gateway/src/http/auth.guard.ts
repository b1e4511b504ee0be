import {
  type CanActivate,
  type ExecutionContext,
  Inject,
  Injectable,
  SetMetadata,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { FastifyRequest } from 'fastify';
import type { Scope } from '../application/api-keys';
import { type Caller, KeyRing } from '../application/key-ring';
import { RateLimit } from '../application/rate-limit';
import { Tickets } from '../application/tickets';
import { METRICS } from '../tokens';
import { ApiError, type ErrorCode } from './api-error';
import { headerOf } from './hooks';
import type { Metrics } from './metrics';
import { knownOf } from './request-context';

const SCOPES_NEEDED = 'scopes';
const TICKET_ALLOWED = 'ticket';

/** What a caller must be allowed to do; an endpoint without it is open to everyone. */
export const Needs = (...scopes: readonly Scope[]) => SetMetadata(SCOPES_NEEDED, scopes);
/** Open to everyone. */
export const Open = () => SetMetadata(SCOPES_NEEDED, []);
/** Browsers may come with a ticket for the session in the path. */
export const TakesTicket = () => SetMetadata(TICKET_ALLOWED, true);

export const FAILED_LOGINS = Symbol('failed logins');

/** Fails closed: an endpoint that says nothing about scopes answers nobody. */
@Injectable()
export class AuthGuard implements CanActivate {
  constructor(
    @Inject(Reflector) private readonly reflector: Reflector,
    @Inject(KeyRing) private readonly keys: KeyRing,
    @Inject(Tickets) private readonly tickets: Tickets,
    @Inject(RateLimit) private readonly rate: RateLimit,
    @Inject(FAILED_LOGINS) private readonly failures: RateLimit,
    @Inject(METRICS) private readonly metrics: Metrics,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const places = [context.getHandler(), context.getClass()];
    const needed = this.reflector.getAllAndOverride<readonly Scope[]>(SCOPES_NEEDED, places);
    if (!needed) throw new ApiError('forbidden', 'this endpoint is not open');
    if (needed.length === 0) return true;
    const request = context.switchToHttp().getRequest<FastifyRequest>();
    const takesTicket = this.reflector.getAllAndOverride<boolean>(TICKET_ALLOWED, places) ?? false;
    const caller = await this.callerOf(request, takesTicket);
    const missing = needed.filter((scope) => !caller.scopes.includes(scope));
    if (missing.length > 0)
      throw this.refusal('forbidden', `this needs the scope ${missing.join(', ')}`, { missing });
    const wait = this.rate.take(caller.keyId);
    if (wait !== null) throw this.refusal('rate_limited', 'too many requests', {}, wait);
    knownOf(request).caller = caller;
    return true;
  }

  private async callerOf(request: FastifyRequest, takesTicket: boolean): Promise<Caller> {
    const caller = takesTicket ? this.ticketHolder(request) : null;
    const token = /^Bearer ([\x21-\x7e]{1,512})$/i.exec(
      headerOf(request, 'authorization') ?? '',
    )?.[1];
    const known = caller ?? (token ? await this.keys.verify(token) : null);
    if (known) return known;
    const wait = this.failures.take(request.ip);
    if (wait !== null)
      throw this.refusal('rate_limited', 'too many requests without a valid key', {}, wait);
    throw this.refusal(
      'unauthorized',
      token ? 'the API key is not valid' : 'this endpoint needs an API key',
    );
  }

  private ticketHolder(request: FastifyRequest): Caller | null {
    const { ticket } = request.query as Readonly<Record<string, unknown>>;
    const { sessionId } = request.params as Readonly<Record<string, unknown>>;
    if (typeof ticket !== 'string' || typeof sessionId !== 'string') return null;
    const caller = this.tickets.redeem(ticket, sessionId);
    return caller && !this.keys.isRevoked(caller.keyId) ? caller : null;
  }

  private refusal(
    code: ErrorCode,
    message: string,
    details = {},
    retryAfterSeconds: number | null = null,
  ): ApiError {
    this.metrics.refused.inc({ code });
    return new ApiError(code, message, null, details, retryAfterSeconds);
  }
}
