const AT_LEAST_MS = 10;
const AT_MOST_MS = 60_000;

/** When to look at what again, with one timer for all. */
export class WakeUps {
  private readonly times = new Map<string, number>();
  private timer: NodeJS.Timeout | undefined;
  private timerAt = Number.POSITIVE_INFINITY;

  constructor(
    private readonly now: () => number,
    private readonly wake: (id: string) => void,
  ) {}

  /** In place of what was set before; null for never. */
  set(id: string, at: number | null): void {
    if (at === null) this.times.delete(id);
    else this.times.set(id, at);
    if (at !== null && at < this.timerAt) this.arm(at);
  }

  stop(): void {
    this.times.clear();
    clearTimeout(this.timer);
  }

  private arm(at: number): void {
    clearTimeout(this.timer);
    this.timerAt = at;
    const delay = Math.min(AT_MOST_MS, Math.max(AT_LEAST_MS, at - this.now()));
    this.timer = setTimeout(() => this.ring(), delay);
  }

  private ring(): void {
    this.timerAt = Number.POSITIVE_INFINITY;
    const now = this.now();
    let next = Number.POSITIVE_INFINITY;
    const due: string[] = [];
    for (const [id, at] of this.times) {
      if (at <= now) due.push(id);
      else next = Math.min(next, at);
    }
    if (next < Number.POSITIVE_INFINITY) this.arm(next);
    for (const id of due) {
      this.times.delete(id);
      this.wake(id);
    }
  }
}
