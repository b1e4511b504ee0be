import { ManifestRefused } from '@vmux/artifacts';
import { timeLimit } from '@vmux/messaging';
import { Turns } from './turns';

export interface ScanRoomSettings {
  /** What the listing of a tree takes that is read beside many others. */
  readonly smallBytes: number;
  readonly smallAtOnce: number;
  /** What any listing takes: a sandbox may lie about how much there is. */
  readonly largeBytes: number;
  readonly largeAtOnce: number;
  readonly patienceMs: number;
  /** A sandbox that never comes to an end keeps nobody else waiting for longer. */
  readonly longestMs: number;
}

const MiB = 1024 * 1024;
const DEFAULTS: ScanRoomSettings = {
  smallBytes: 4 * MiB,
  smallAtOnce: 16,
  largeBytes: 256 * MiB,
  largeAtOnce: 2,
  patienceMs: 5 * 60_000,
  longestMs: 60 * 60_000,
};

/** A tree whose listing takes more than it was given room for. */
export class LargeTree extends ManifestRefused {}

/**
 * Bounds what the trees of all sandboxes together take in this process. Most are small and many of them are
 * read at once; one that turns out to be large begins again when it is its turn, with nothing held meanwhile:
 * its sandbox goes on while it waits.
 */
export class ScanRoom {
  private readonly settings: ScanRoomSettings;
  private readonly small: Turns;
  private readonly large: Turns;

  constructor(settings: Partial<ScanRoomSettings> = {}) {
    this.settings = { ...DEFAULTS, ...settings };
    const { smallAtOnce, largeAtOnce, patienceMs } = this.settings;
    this.small = new Turns(smallAtOnce, patienceMs);
    this.large = new Turns(largeAtOnce, patienceMs);
  }

  /** `expectedBytes`: as much as it took before; what was large need not turn out so again. */
  async run<T>(
    work: (maxScanBytes: number, signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
    expectedBytes = 0,
  ): Promise<T> {
    const { smallBytes, largeBytes, longestMs } = this.settings;
    const bounded = (maxScanBytes: number) => () =>
      work(maxScanBytes, AbortSignal.any([signal, timeLimit(longestMs)]));
    if (expectedBytes > smallBytes) return this.large.run(bounded(largeBytes), signal);
    try {
      return await this.small.run(bounded(smallBytes), signal);
    } catch (error) {
      if (!(error instanceof LargeTree)) throw error;
    }
    return this.large.run(bounded(largeBytes), signal);
  }
}

/** Of this process. */
export const scanRoom = new ScanRoom();
