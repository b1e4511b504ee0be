/** Things to be looked at, each by one worker at a time; asked for again meanwhile, it is looked at again. */
export class WorkSet {
  private readonly waiting = new Set<string>();
  private readonly underWay = new Map<string, Promise<void>>();
  private stopped = false;

  constructor(
    private readonly maxUnderWay: number,
    private readonly work: (id: string) => Promise<void>,
  ) {}

  add(id: string): void {
    if (this.stopped) return;
    this.waiting.add(id);
    this.next();
  }

  /** Takes nothing more and returns when what is under way is done. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.waiting.clear();
    await Promise.all(this.underWay.values());
  }

  private next(): void {
    for (const id of this.waiting) {
      if (this.underWay.size >= this.maxUnderWay) return;
      if (this.underWay.has(id)) continue;
      this.waiting.delete(id);
      const done = this.work(id).finally(() => {
        this.underWay.delete(id);
        this.next();
      });
      this.underWay.set(id, done);
    }
  }
}
