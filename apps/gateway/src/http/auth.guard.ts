import {
  type CanActivate,
  type ExecutionContext,
  Inject,
  Injectable,
  SetMetadata,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { ShareRight } from '@vmux/events';
import type { FastifyRequest } from 'fastify';
import type { Scope } from '../application/api-keys';
import { KeyRing } from '../application/key-ring';
import { RateLimit } from '../application/rate-limit';
import { Shares } from '../application/shares';
import { Tickets } from '../application/tickets';
import { METRICS } from '../tokens';
import { ApiError } from './api-error';
import { Callers } from './callers';
import { headerOf } from './hooks';
import type { Metrics } from './metrics';
import { knownOf } from './request-context';

const SCOPES_NEEDED = 'scopes';
const TICKET_ALLOWED = 'ticket';
const RIGHTS_TAKEN = 'rights';

/** What a caller must be allowed to do; an endpoint without it is open to everyone. */
export const Needs = (...scopes: readonly Scope[]) => SetMetadata(SCOPES_NEEDED, scopes);
/** Open to everyone. */
export const Open = () => SetMetadata(SCOPES_NEEDED, []);
/** Browsers may come with a ticket for the session in the path. */
export const TakesTicket = () => SetMetadata(TICKET_ALLOWED, true);

/** Open to a share of the session in the path that has one of the rights. */
export const TakesShare = (...rights: readonly ShareRight[]) => SetMetadata(RIGHTS_TAKEN, rights);

export const FAILED_LOGINS = Symbol('failed logins');

/** Fails closed: an endpoint that says nothing about scopes answers nobody. */
@Injectable()
export class AuthGuard implements CanActivate {
  private readonly callers: Callers;

  constructor(
    @Inject(Reflector) private readonly reflector: Reflector,
    @Inject(KeyRing) keys: KeyRing,
    @Inject(Tickets) tickets: Tickets,
    @Inject(RateLimit) rate: RateLimit,
    @Inject(FAILED_LOGINS) failures: RateLimit,
    @Inject(METRICS) metrics: Metrics,
    @Inject(Shares) shares: Shares,
  ) {
    this.callers = new Callers(keys, tickets, rate, failures, metrics, shares);
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const places = [context.getHandler(), context.getClass()];
    const needed = this.reflector.getAllAndOverride<readonly Scope[]>(SCOPES_NEEDED, places);
    if (!needed) throw new ApiError('forbidden', 'this endpoint is not open');
    if (needed.length === 0) return true;
    const request = context.switchToHttp().getRequest<FastifyRequest>();
    const takesTicket = this.reflector.getAllAndOverride<boolean>(TICKET_ALLOWED, places) ?? false;
    const rights =
      this.reflector.getAllAndOverride<readonly ShareRight[]>(RIGHTS_TAKEN, places) ?? [];
    const caller = await this.callers.known({
      authorization: headerOf(request, 'authorization'),
      ticket: takesTicket ? ticketIn(request) : null,
      ip: request.ip,
      sharedSession: rights.length > 0 ? sessionIn(request) : null,
    });
    this.callers.admit(caller, needed, rights);
    knownOf(request).caller = caller;
    return true;
  }
}

function ticketIn(request: FastifyRequest): { text: string; sessionId: string } | null {
  const { ticket } = request.query as Readonly<Record<string, unknown>>;
  const sessionId = sessionIn(request);
  if (typeof ticket !== 'string' || sessionId === null) return null;
  return { text: ticket, sessionId };
}

function sessionIn(request: FastifyRequest): string | null {
  const { sessionId } = request.params as Readonly<Record<string, unknown>>;
  return typeof sessionId === 'string' ? sessionId : null;
}
