import {
  closeSync,
  fdatasync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  writeSync,
} from 'node:fs';
import { walFile } from './schema';

/*
 * How acknowledged comes to mean durable without blocking the event loop:
 *
 * 1. A group of appends is one transaction. In WAL mode with synchronous=NORMAL its COMMIT appends to
 *    events.db-wal and syncs nothing.
 * 2. `fdatasync` of events.db-wal runs in the thread pool. The WAL's frames carry checksums chained from
 *    its header, so once it returns, recovery finds the transaction.
 * 3. The high-water mark is written, then the group is published and acknowledged.
 *
 * The checkpoint that moves the WAL into events.db keeps this safe by SQLite's own order at NORMAL: sync
 * the WAL, write the pages to events.db, sync events.db, and only then may the WAL be overwritten from its
 * start; the new header is synced before frames follow it. So at no time is an acknowledged transaction
 * only in unsynced pages.
 *
 * A failed fsync leaves unknown what the kernel kept and a second try may report success for lost pages:
 * the process ends, and a restart recovers what the disk really has.
 */
const PREALLOCATED_BYTES = 4 * 1024 * 1024;

export class WalSync {
  private readonly fd: number;

  /** The WAL exists once the database has been read or written in WAL mode. */
  constructor(directory: string) {
    // SQLite takes no locks on the WAL file itself, so closing this descriptor releases none.
    this.fd = openSync(walFile(directory), 'r+');
    this.preallocate();
    // A killed process may have left commits that were never synced. They are about to be shown.
    fsyncSync(this.fd);
    const directoryFd = openSync(directory, 'r');
    fsyncSync(directoryFd);
    closeSync(directoryFd);
  }

  /**
   * Overwriting a file syncs in about half the time that growing it takes: its size and blocks stay as
   * they are. Zeros behind the last frame have no valid checksum: to SQLite the log ends before them.
   */
  private preallocate(): void {
    const { size } = fstatSync(this.fd);
    if (size >= PREALLOCATED_BYTES) return;
    try {
      writeSync(this.fd, Buffer.alloc(PREALLOCATED_BYTES - size), 0, undefined, size);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      // A full disk is no reason not to serve reads.
      ftruncateSync(this.fd, size);
    }
  }

  /** Resolves when everything committed so far is durable. */
  sync(): Promise<void> {
    return new Promise((resolve, reject) =>
      fdatasync(this.fd, (error) => (error ? reject(error) : resolve())),
    );
  }

  close(): void {
    closeSync(this.fd);
  }
}
