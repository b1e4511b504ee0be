import type { Scope } from '../application/api-keys';
import type { Caller, KeyRing } from '../application/key-ring';
import type { RateLimit } from '../application/rate-limit';
import type { Tickets } from '../application/tickets';
import { ApiError, type ErrorCode } from './api-error';
import type { Metrics } from './metrics';

/** What a request shows of who sent it. */
export interface Credentials {
  readonly authorization: string | undefined;
  /** For browsers, in the place of a key; null where none is taken. */
  readonly ticket: { readonly text: string; readonly sessionId: string } | null;
  readonly ip: string;
}

/** Knows callers by their key or ticket, and slows down who has neither. */
export class Callers {
  constructor(
    private readonly keys: KeyRing,
    private readonly tickets: Tickets,
    private readonly rate: RateLimit,
    private readonly failures: RateLimit,
    private readonly metrics: Metrics,
  ) {}

  async known({ authorization, ticket, ip }: Credentials): Promise<Caller> {
    const token = /^Bearer ([\x21-\x7e]{1,512})$/i.exec(authorization ?? '')?.[1];
    const holder = ticket ? this.holder(ticket.text, ticket.sessionId) : null;
    const caller = holder ?? (token ? await this.keys.verify(token) : null);
    if (!caller) throw this.stranger(token !== undefined, ip);
    return caller;
  }

  /** Throws when a scope is missing, or too much was asked for lately. */
  admit({ keyId, scopes }: Caller, needed: readonly Scope[]): void {
    const missing = needed.filter((scope) => !scopes.includes(scope));
    if (missing.length > 0)
      throw this.refusal('forbidden', `this needs the scope ${missing.join(', ')}`, { missing });
    const wait = this.rate.take(keyId);
    if (wait !== null) throw this.refusal('rate_limited', 'too many requests', {}, wait);
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

  private holder(ticket: string, sessionId: string): Caller | null {
    const caller = this.tickets.redeem(ticket, sessionId);
    return caller && !this.keys.isRevoked(caller.keyId) ? caller : null;
  }

  private stranger(hasToken: boolean, ip: string): ApiError {
    const wait = this.failures.take(ip);
    if (wait !== null)
      return this.refusal('rate_limited', 'too many requests without a valid key', {}, wait);
    return this.refusal(
      'unauthorized',
      hasToken ? 'the API key is not valid' : 'this endpoint needs an API key',
    );
  }
}
