import type { Outcome } from '@vmux/events';
import type { Figures } from '../supervisor-answers';

export interface MemoryKill {
  readonly peakBytes: number;
  readonly limitBytes: number;
  /** False when something else in the sandbox may be what was killed. */
  readonly certain: boolean;
}

type Look = () => Promise<Figures>;

const lookAfterMs = 1_000;

/** Tells a kill for want of memory from any other, by the sandbox's own count of them. */
export class MemoryKills {
  private begun: Promise<void> | undefined;
  /** Those that are told, or were there before anybody looked. */
  private seen = 0;
  /** Something ended since the last look, and may have outlived a kill of what it ran. */
  private unsure = false;
  private looking = false;

  /** Counts from here on; once that is known, further calls change nothing. */
  begin(figures: Look): void {
    if (this.begun) return;
    this.begun = figures().then(({ oomKills = 0 }) => {
      this.seen = oomKills;
    });
    // The pipe broke, which its owner hears of anyway: the next one is asked again.
    this.begun.catch(() => {
      this.begun = undefined;
    });
  }

  /** `alone`: nothing else runs. A kill is told once: at worst an end has no reason. */
  async reasonOf(outcome: Outcome, alone: boolean, figures: Look): Promise<MemoryKill | undefined> {
    if (!isKill(outcome)) this.lookSoon(figures);
    if (!isKill(outcome) || !this.begun) return undefined;
    await this.begun;
    const { oomKills = 0, memoryPeakBytes = 0, memoryLimitBytes = 0 } = await figures();
    if (oomKills <= this.seen) return undefined;
    const certain = alone && !this.unsure && oomKills === this.seen + 1;
    this.seen = oomKills;
    return { peakBytes: memoryPeakBytes, limitBytes: memoryLimitBytes, certain };
  }

  /** Once for all that ends meanwhile: the end of a short exec costs no look of its own. */
  private lookSoon(figures: Look): void {
    this.unsure = true;
    if (this.looking) return;
    this.looking = true;
    const look = async () => {
      this.looking = false;
      this.unsure = false;
      const { oomKills = 0 } = await figures();
      this.seen = Math.max(this.seen, oomKills);
    };
    setTimeout(
      () =>
        void look().catch(() => {
          this.unsure = true;
        }),
      lookAfterMs,
    ).unref();
  }
}

/** By signal, or as a shell says it of what it ran. */
const isKill = (outcome: Outcome): boolean =>
  outcome.kind === 'signalled'
    ? outcome.signal === 'SIGKILL'
    : outcome.kind === 'exited' && outcome.code === 128 + 9;
