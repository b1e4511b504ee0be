import { createHash, randomBytes } from 'node:crypto';
import type { Caller } from './key-ring';

const LIVES_MS = 30_000;
const MAX_TICKETS = 10_000;

/**
 * For browsers, whose EventSource and WebSocket cannot send a header: a ticket stands in the URL in the
 * place of an API key, works once, and not for long. Kept in memory, by this gateway alone.
 */
export class Tickets {
  private readonly open = new Map<string, { caller: Caller; sessionId: string; until: number }>();

  constructor(private readonly now: () => number = Date.now) {}

  issue(caller: Caller, sessionId: string): { ticket: string; expiresAt: number } {
    const now = this.now();
    for (const [hash, { until }] of this.open) {
      if (until > now && this.open.size < MAX_TICKETS) break;
      this.open.delete(hash);
    }
    const ticket = randomBytes(32).toString('base64url');
    const expiresAt = now + LIVES_MS;
    this.open.set(hashOf(ticket), { caller, sessionId, until: expiresAt });
    return { ticket, expiresAt };
  }

  /** Null for a ticket that is not known, was used, is too old, or is for another session. */
  redeem(ticket: string, sessionId: string): Caller | null {
    const hash = hashOf(ticket);
    const found = this.open.get(hash);
    this.open.delete(hash);
    if (!found || found.until <= this.now() || found.sessionId !== sessionId) return null;
    return found.caller;
  }
}

const hashOf = (ticket: string): string => createHash('sha256').update(ticket).digest('hex');
