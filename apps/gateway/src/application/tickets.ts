import { createHash, randomBytes } from 'node:crypto';
import type { Caller } from './key-ring';

const LIVES_MS = 30_000;
const MAX_TICKETS = 10_000;

interface Ticket {
  readonly caller: Caller;
  readonly sessionId: string;
  readonly until: number;
}

/** A place that several gateways reach. Neither throws: without it each keeps its own. */
export interface TicketShelf {
  /** False when it cannot be kept there. */
  put(name: string, value: string, livesMs: number): Promise<boolean>;
  /** Of all who try, one gets it. */
  take(name: string): Promise<string | null>;
}

/**
 * For browsers, whose EventSource and WebSocket cannot send a header: a ticket stands in the URL in the
 * place of an API key, works once, and not for long. On the shelf when there is one, so that it opens
 * something at every gateway; otherwise in memory, by this one alone.
 */
export class Tickets {
  private readonly open = new Map<string, Ticket>();

  constructor(
    private readonly now: () => number = Date.now,
    private readonly shelf: TicketShelf | null = null,
  ) {}

  async issue(caller: Caller, sessionId: string): Promise<{ ticket: string; expiresAt: number }> {
    const now = this.now();
    const ticket = randomBytes(32).toString('base64url');
    const expiresAt = now + LIVES_MS;
    const value = { caller, sessionId, until: expiresAt };
    const shelved = await this.shelf?.put(hashOf(ticket), JSON.stringify(value), LIVES_MS);
    if (!shelved) this.keep(hashOf(ticket), value, now);
    return { ticket, expiresAt };
  }

  /** Null for a ticket that is not known, was used, is too old, or is for another session. */
  async redeem(ticket: string, sessionId: string): Promise<Caller | null> {
    const hash = hashOf(ticket);
    const kept = this.open.get(hash);
    this.open.delete(hash);
    const shelved = kept ? null : await this.shelf?.take(hash);
    const found = kept ?? (shelved ? (JSON.parse(shelved) as Ticket) : null);
    if (!found || found.until <= this.now() || found.sessionId !== sessionId) return null;
    return found.caller;
  }

  private keep(hash: string, value: Ticket, now: number): void {
    for (const [each, { until }] of this.open) {
      if (until > now && this.open.size < MAX_TICKETS) break;
      this.open.delete(each);
    }
    this.open.set(hash, value);
  }
}

const hashOf = (ticket: string): string => createHash('sha256').update(ticket).digest('hex');
