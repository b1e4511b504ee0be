import type { Caller } from '../application/key-ring';
import type { Share, Shares } from '../application/shares';
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
  private closing = false;

  constructor(
    private readonly maxPerOwner: number,
    private readonly keepAliveMs: number,
    private readonly metrics: Metrics,
    private readonly isRevoked: (keyId: string) => boolean,
    private readonly shares: Pick<Shares, 'ended'> | null = null,
  ) {
    this.timer = setInterval(() => this.cutRevoked(), LOOK_EVERY_MS).unref();
  }

  enter(caller: Caller): Held {
    let now = 0;
    // Whoever has a share must not be able to use up what its owner may open.
    for (const each of this.open.values()) if (holderOf(each) === holderOf(caller)) now += 1;
    if (now >= this.maxPerOwner)
      throw new ApiError('too_many_followers', `you have ${now} open streams`, null, {
        max: this.maxPerOwner,
      });
    const mine = new AbortController();
    this.open.set(mine, caller);
    this.metrics.followers.set(this.open.size);
    const left = new AbortController();
    if (caller.share) this.cutWithShare(mine, caller.share, left.signal);
    const leave = () => {
      left.abort();
      this.leave(mine);
    };
    return { signal: mine.signal, keepAliveMs: this.keepAliveMs, leave };
  }

  /** What is cut now is cut because this process ends. */
  get isClosing(): boolean {
    return this.closing;
  }

  closeAll(): void {
    this.closing = true;
    clearInterval(this.timer);
    for (const each of this.open.keys()) each.abort();
  }

  private cutRevoked(): void {
    for (const [each, { keyId, share }] of this.open)
      if (!share && this.isRevoked(keyId)) each.abort();
  }

  /** Also when nobody can say any more whether it holds. */
  private cutWithShare(mine: AbortController, share: Share, left: AbortSignal): void {
    const cut = () => {
      if (!left.aborted) mine.abort();
    };
    if (this.shares) this.shares.ended(share, left).then(cut, cut);
    else cut();
  }

  private leave(mine: AbortController): void {
    this.open.delete(mine);
    this.metrics.followers.set(this.open.size);
  }
}

const holderOf = ({ owner, keyId, share }: Caller): string => (share ? keyId : owner);
