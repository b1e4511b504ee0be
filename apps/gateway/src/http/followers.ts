import { ApiError } from './api-error';
import type { Metrics } from './metrics';

/** Streams that are open: so many per owner, and all of them end when the gateway does. */
export class Followers {
  private readonly open = new Map<string, number>();
  private readonly closing = new AbortController();

  constructor(
    private readonly maxPerOwner: number,
    private readonly metrics: Metrics,
  ) {}

  enter(owner: string): { readonly signal: AbortSignal; leave(): void } {
    const now = this.open.get(owner) ?? 0;
    if (now >= this.maxPerOwner)
      throw new ApiError('too_many_followers', `you have ${now} open streams`, null, {
        max: this.maxPerOwner,
      });
    this.open.set(owner, now + 1);
    this.metrics.followers.inc();
    // Each has its own: listeners go with it, not with the gateway.
    const mine = new AbortController();
    const close = () => mine.abort();
    this.closing.signal.addEventListener('abort', close);
    return { signal: mine.signal, leave: () => this.leave(owner, close) };
  }

  closeAll(): void {
    this.closing.abort();
  }

  private leave(owner: string, close: () => void): void {
    this.closing.signal.removeEventListener('abort', close);
    const left = (this.open.get(owner) ?? 1) - 1;
    if (left > 0) this.open.set(owner, left);
    else this.open.delete(owner);
    this.metrics.followers.dec();
  }
}
