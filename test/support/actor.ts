import type { RunningProcess } from '@vmux/testing';

/** What may be wrong with a process from its start; preload.ts says what each is. */
export const FLAWS = [
  'VMUX_CLOCK_SHIFT_MS',
  'VMUX_CRASH_AT',
  'VMUX_CRASH_FILE',
  'VMUX_BRIEF_SANDBOXES_MS',
] as const;
export type Flaw = Readonly<Partial<Record<(typeof FLAWS)[number], string>>>;

/** A process of the stack that can be killed, frozen and started again on the same port and data. */
export class Actor {
  private process: RunningProcess<unknown> | undefined;
  /** It ended though nobody ended it. */
  hasDied = false;

  constructor(
    readonly name: string,
    private readonly launch: (flaw: Flaw) => Promise<RunningProcess<unknown>>,
    /** Forgets what it kept, while it is down. */
    readonly forget: () => void = () => undefined,
  ) {}

  get isUp(): boolean {
    return this.process !== undefined;
  }

  get pid(): number | undefined {
    return this.process?.pid;
  }

  get output(): string {
    return this.process?.output() ?? '';
  }

  async start(flaw: Flaw = {}): Promise<void> {
    this.hasDied = false;
    // A start may meet a peer that is down: whoever supervises processes tries again.
    for (let attempt = 1; ; attempt++) {
      try {
        const started = await this.launch(flaw);
        this.process = started;
        void started.exited.then(() => {
          this.hasDied = this.process === started;
        });
        return;
      } catch (fault) {
        if (attempt === 5) throw fault;
      }
    }
  }

  async kill(): Promise<void> {
    const process = this.process;
    this.process = undefined;
    await process?.kill('SIGKILL');
  }

  async stop(): Promise<void> {
    const process = this.process;
    this.process = undefined;
    await process?.stop(10_000);
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT' | 'SIGUSR2'): void {
    if (this.process && !this.hasDied) process.kill(this.process.pid, signal);
  }
}
