import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const DIGITS = 20;

/**
 * The position of the last acknowledged event, kept outside the database. It is written after the events
 * are durable and before they are acknowledged, so a database that ends before it has lost acknowledged
 * events: its log was truncated, deleted or replaced by an older copy. It is not synced on its own: after
 * a killed process it is exact, after a power loss it may lag by what the kernel had not yet written, and
 * it is never ahead of the events.
 */
export class HighWaterMark {
  private readonly fd: number;
  readonly initial: number | undefined;
  private readonly line = Buffer.alloc(DIGITS + 1, '\n');

  constructor(directory: string) {
    const file = join(directory, 'high-water-mark');
    this.initial = existsSync(file) ? parse(readFileSync(file, 'latin1'), file) : undefined;
    this.fd = openSync(file, this.initial === undefined ? 'w+' : 'r+', 0o600);
    if (this.initial === undefined) this.write(0);
  }

  write(position: number): void {
    this.line.write(String(position).padStart(DIGITS, '0'), 'latin1');
    try {
      writeSync(this.fd, this.line, 0, this.line.length, 0);
    } catch (error) {
      // File systems that never overwrite in place may refuse on a full disk. A mark that lags is safe.
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
  }

  close(): void {
    fsyncSync(this.fd);
    closeSync(this.fd);
  }
}

function parse(text: string, file: string): number | undefined {
  // Empty: the process was killed between creating the file and its first write, before any event.
  if (text === '') return undefined;
  if (!/^\d{20}\n$/.test(text)) {
    throw new Error(
      `${file} is damaged: compare the database with a backup, then delete this file to go on`,
    );
  }
  return Number(text);
}
