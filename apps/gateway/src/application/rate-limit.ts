/** A bucket per name: so many at once, refilled at a steady rate. Bounded: the idle ones are forgotten. */
export class RateLimit {
  private readonly buckets = new Map<string, { tokens: number; at: number }>();

  constructor(
    private readonly perSecond: number,
    private readonly burst: number,
    private readonly maxNames = 10_000,
    private readonly now: () => number = Date.now,
  ) {}

  /** Null when it may go on; else how many seconds to wait. */
  take(name: string): number | null {
    const at = this.now();
    const bucket = this.buckets.get(name) ?? { tokens: this.burst, at };
    const refilled = bucket.tokens + ((at - bucket.at) / 1000) * this.perSecond;
    const tokens = Math.min(this.burst, refilled);
    this.buckets.delete(name);
    this.buckets.set(name, { tokens: tokens >= 1 ? tokens - 1 : tokens, at });
    this.forget();
    return tokens >= 1 ? null : Math.max(1, Math.ceil((1 - tokens) / this.perSecond));
  }

  private forget(): void {
    if (this.buckets.size <= this.maxNames) return;
    const [oldest] = this.buckets.keys();
    if (oldest !== undefined) this.buckets.delete(oldest);
  }
}
