/** A bucket per name: so many at once, refilled at a steady rate. Bounded: the idle ones are forgotten. */
export class RateLimit {
  private readonly buckets = new Map<string, { tokens: number; at: number }>();
  private taken: Map<string, number> | null = null;

  constructor(
    private readonly perSecond: number,
    private readonly burst: number,
    private readonly maxNames = 10_000,
    private readonly now: () => number = Date.now,
  ) {}

  /** Null when it may go on; else how many seconds to wait. */
  take(name: string): number | null {
    const tokens = this.refilled(name);
    if (tokens < 1) {
      this.set(name, tokens);
      return Math.max(1, Math.ceil((1 - tokens) / this.perSecond));
    }
    this.set(name, tokens - 1);
    this.taken?.set(name, (this.taken.get(name) ?? 0) + 1);
    return null;
  }

  /** What `take` would say; takes nothing. */
  wait(name: string): number | null {
    const tokens = this.refilled(name);
    return tokens < 1 ? Math.max(1, Math.ceil((1 - tokens) / this.perSecond)) : null;
  }

  /** What was taken elsewhere counts here too, up to twice the burst: nobody waits for ever. */
  spend(name: string, count: number): void {
    this.set(name, Math.max(-this.burst, this.refilled(name) - count));
  }

  /** Notes what is taken, for `account`. */
  keepAccount(): void {
    this.taken ??= new Map();
  }

  /** What was taken since the last call. */
  account(): ReadonlyMap<string, number> {
    const taken = this.taken ?? new Map();
    if (this.taken) this.taken = new Map();
    return taken;
  }

  private refilled(name: string): number {
    const at = this.now();
    const bucket = this.buckets.get(name) ?? { tokens: this.burst, at };
    return Math.min(this.burst, bucket.tokens + ((at - bucket.at) / 1000) * this.perSecond);
  }

  private set(name: string, tokens: number): void {
    this.buckets.delete(name);
    this.buckets.set(name, { tokens, at: this.now() });
    if (this.buckets.size <= this.maxNames) return;
    const [oldest] = this.buckets.keys();
    if (oldest !== undefined) this.buckets.delete(oldest);
  }
}
