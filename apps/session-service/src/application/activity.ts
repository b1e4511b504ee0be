const RECENT_MS = 1000;

/** Which sessions something happened in lately: as much of it as tells whether one has company. */
export class Activity {
  private latest: { readonly sessionId: string; at: number } | null = null;
  private other: { readonly sessionId: string; at: number } | null = null;

  constructor(private readonly now: () => number) {}

  note(sessionId: string): void {
    const at = this.now();
    if (this.latest?.sessionId === sessionId) {
      this.latest.at = at;
      return;
    }
    this.other = this.latest;
    this.latest = { sessionId, at };
  }

  /** Whether anybody else did something a moment ago. */
  besides(sessionId: string): boolean {
    const last = this.latest?.sessionId === sessionId ? this.other : this.latest;
    return last !== null && this.now() - last.at < RECENT_MS;
  }
}
