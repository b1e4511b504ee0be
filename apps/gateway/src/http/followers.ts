import type { Caller } from '../application/key-ring';
import { ApiError } from './api-error';
import type { Metrics } from './metrics';

/** One open stream. */
export interface Held {
  readonly signal: AbortSignal;
  readonly keepAliveMs: number;
  leave(): void;
}

const LOOK_EVERY_MS = 500;

/** Streams that are open: so many per owner, cut when their key is revoked or the gateway ends. */
export class Followers {
  private readonly open = new Map<AbortController, Caller>();
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly maxPerOwner: number,
    private readonly keepAliveMs: number,
    private readonly metrics: Metrics,
    private readonly isRevoked: (keyId: string) => boolean,
  ) {
    this.timer = setInterval(() => this.cutRevoked(), LOOK_EVERY_MS).unref();
  }

  enter(caller: Caller): Held {
    let now = 0;
    for (const { owner } of this.open.values()) if (owner === caller.owner) now += 1;
    if (now >= this.maxPerOwner)
      throw new ApiError('too_many_followers', `you have ${now} open streams`, null, {
        max: this.maxPerOwner,
      });
    const mine = new AbortController();
    this.open.set(mine, caller);
    this.metrics.followers.set(this.open.size);
    return { signal: mine.signal, keepAliveMs: this.keepAliveMs, leave: () => this.leave(mine) };
  }

  closeAll(): void {
    clearInterval(this.timer);
    for (const each of this.open.keys()) each.abort();
  }

  private cutRevoked(): void {
    for (const [each, { keyId }] of this.open) if (this.isRevoked(keyId)) each.abort();
  }

  private leave(mine: AbortController): void {
    this.open.delete(mine);
    this.metrics.followers.set(this.open.size);
  }
}
