import { statfs } from 'node:fs/promises';
import type { Log } from './log';

/** Whether the store's disk has more room than the reserve that is kept for control events. */
export class Room {
  private enough = true;

  constructor(
    private readonly directory: string | null,
    private readonly reserveBytes: number,
    private readonly log: Log,
  ) {}

  get isEnough(): boolean {
    return this.enough;
  }

  async look(): Promise<void> {
    if (this.directory === null) return;
    const { bavail, bsize } = await statfs(this.directory);
    const enough = bavail * bsize > this.reserveBytes;
    if (enough !== this.enough)
      this.log.warn(
        { freeBytes: bavail * bsize, reserveBytes: this.reserveBytes },
        enough ? 'there is room for output again' : 'the store is short of room: output waits',
      );
    this.enough = enough;
  }
}
