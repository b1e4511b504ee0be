import type { ShareRight } from '@vmux/events';
import type { Scope } from '../application/api-keys';
import type { Caller, KeyRing } from '../application/key-ring';
import type { RateLimit } from '../application/rate-limit';
import { isShareToken, type Shares } from '../application/shares';
import type { Tickets } from '../application/tickets';
import { ApiError, type ErrorCode } from './api-error';
import type { Metrics } from './metrics';

/** What a request shows of who sent it. */
export interface Credentials {
  readonly authorization: string | undefined;
  /** For browsers, in the place of a key; null where none is taken. */
  readonly ticket: { readonly text: string; readonly sessionId: string } | null;
  readonly ip: string;
  /** The session in the path, where shares are taken; nothing elsewhere. */
  readonly sharedSession?: string | null;
}

/** Knows callers by their key or ticket, and slows down who has neither. */
export class Callers {
  constructor(
    private readonly keys: KeyRing,
    private readonly tickets: Tickets,
    private readonly rate: RateLimit,
    private readonly failures: RateLimit,
    private readonly metrics: Metrics,
    /** Without it nothing is open to shares. */
    private readonly shares: Shares | null = null,
  ) {}

  async known(credentials: Credentials): Promise<Caller> {
    const { authorization, ticket, ip, sharedSession = null } = credentials;
    const token = /^Bearer ([\x21-\x7e]{1,512})$/i.exec(authorization ?? '')?.[1];
    const holder = ticket ? await this.holder(ticket.text, ticket.sessionId) : null;
    const caller = holder ?? (token ? await this.bearer(token, sharedSession) : null);
    if (!caller) throw this.stranger(token !== undefined, ip);
    return caller;
  }

  /** Throws when a scope is missing, or too much was asked for lately. */
  admit(
    { keyId, scopes, share }: Caller,
    needed: readonly Scope[],
    rights: readonly ShareRight[] = [],
  ): void {
    if (share && !rights.some((right) => share.rights.includes(right)))
      throw this.refusal('forbidden', 'the share does not open this', { rights: share.rights });
    const missing = share ? [] : needed.filter((scope) => !scopes.includes(scope));
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

  private async bearer(token: string, sharedSession: string | null): Promise<Caller | null> {
    if (!isShareToken(token)) return this.keys.verify(token);
    return this.shares && sharedSession !== null ? this.shares.verify(token, sharedSession) : null;
  }

  private async holder(ticket: string, sessionId: string): Promise<Caller | null> {
    const caller = await this.tickets.redeem(ticket, sessionId);
    if (caller?.share) return (await this.shares?.holds(caller.share)) ? caller : null;
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
