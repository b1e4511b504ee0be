import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import type { RateLimit } from '../application/rate-limit';
import type { TicketShelf } from '../application/tickets';

export interface RedisLinkOptions {
  readonly url: string;
  readonly onFault: (fault: unknown) => void;
  readonly tellEveryMs?: number;
}

const TICKETS = 'vmux:ticket:';
const RATES = 'vmux:rates:';
const MAX_TOLD = 10_000;

/**
 * What gateways that share a Redis know of one another: tickets, and what callers took of their rate.
 * Hints and half-minute things alone: without Redis every gateway goes on by itself.
 */
export class RedisLink implements TicketShelf {
  private readonly redis: Redis;
  private readonly listener: Redis;
  private readonly self = randomUUID();
  private readonly limits = new Map<string, RateLimit>();
  private readonly timer: NodeJS.Timeout;

  constructor({ url, onFault, tellEveryMs = 200 }: RedisLinkOptions) {
    const options = {
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      commandTimeout: 1_000,
      connectTimeout: 5_000,
      retryStrategy: (attempt: number) => Math.min(100 * attempt, 2_000),
    };
    this.redis = new Redis(url, options);
    this.listener = new Redis(url, { ...options, enableOfflineQueue: true });
    let lastFault = '';
    for (const each of [this.redis, this.listener])
      each.on('error', (fault: Error) => {
        if (fault.message !== lastFault) onFault(fault);
        lastFault = fault.message;
      });
    this.listener.psubscribe(`${RATES}*`).catch(onFault);
    this.listener.on('pmessage', (_pattern: string, channel: string, text: string) =>
      this.hear(channel.slice(RATES.length), text),
    );
    this.timer = setInterval(() => this.tell(), tellEveryMs).unref();
  }

  /** From now on the limit counts what is taken at every gateway. */
  share(name: string, limit: RateLimit): void {
    limit.keepAccount();
    this.limits.set(name, limit);
  }

  async put(name: string, value: string, livesMs: number): Promise<boolean> {
    try {
      return (await this.redis.set(`${TICKETS}${name}`, value, 'PX', livesMs)) === 'OK';
    } catch {
      // Redis is away, which was told once: the ticket opens something here alone.
      return false;
    }
  }

  async take(name: string): Promise<string | null> {
    try {
      return await this.redis.getdel(`${TICKETS}${name}`);
    } catch {
      return null;
    }
  }

  /** Called by Nest. */
  onModuleDestroy(): void {
    clearInterval(this.timer);
    this.redis.disconnect();
    this.listener.disconnect();
  }

  private tell(): void {
    for (const [name, limit] of this.limits) {
      const taken = [...limit.account()].slice(0, MAX_TOLD);
      if (taken.length === 0) continue;
      const text = JSON.stringify({ from: this.self, taken });
      // Who does not hear of it lets a little more through.
      this.redis.publish(`${RATES}${name}`, text).catch(() => undefined);
    }
  }

  private hear(name: string, text: string): void {
    const limit = this.limits.get(name);
    const told = parsed(text);
    if (!limit || !told || told.from === this.self) return;
    for (const [who, count] of told.taken.slice(0, MAX_TOLD))
      if (typeof who === 'string' && Number.isFinite(count) && count > 0) limit.spend(who, count);
  }
}

function parsed(text: string): { from: unknown; taken: readonly [string, number][] } | null {
  try {
    const value = JSON.parse(text);
    return Array.isArray(value?.taken) ? value : null;
  } catch {
    return null;
  }
}
