export interface WindowSettings {
  readonly maxInFlight: number;
  readonly maxBytesInFlight: number;
}

/** What was sent and is not acknowledged yet. JetStream answers in the order it was asked. */
export class AckWindow {
  private readonly inFlight: { readonly bytes: number; readonly answer: Promise<void> }[] = [];
  private bytes = 0;
  private failure: { readonly fault: unknown } | null = null;

  constructor(
    private readonly settings: WindowSettings,
    private readonly onFailure: () => void,
  ) {}

  /**
   * Waits, when it is full, until half of it is acknowledged: what is sent next then leaves together.
   * After a failure there is nothing more to wait for.
   */
  async room(bytes: number): Promise<void> {
    const { maxInFlight, maxBytesInFlight } = this.settings;
    if (this.inFlight.length < maxInFlight && this.bytes + bytes <= maxBytesInFlight) return;
    while (!this.failure && this.inFlight.length > 0) {
      if (this.inFlight.length <= maxInFlight / 2 && this.bytes + bytes <= maxBytesInFlight / 2)
        return;
      await this.inFlight[0]?.answer;
    }
  }

  add(bytes: number, acknowledged: Promise<void>): void {
    const entry = {
      bytes,
      answer: acknowledged
        .catch((fault: unknown) => this.fail(fault))
        .finally(() => {
          this.inFlight.splice(this.inFlight.indexOf(entry), 1);
          this.bytes -= bytes;
        }),
    };
    this.inFlight.push(entry);
    this.bytes += bytes;
  }

  async settled(): Promise<void> {
    await Promise.all(this.inFlight.map(({ answer }) => answer));
  }

  /** The first failure; those that follow are its consequences. */
  rethrow(): void {
    if (this.failure) throw this.failure.fault;
  }

  private fail(fault: unknown): void {
    if (this.failure) return;
    this.failure = { fault };
    this.onFailure();
  }
}
