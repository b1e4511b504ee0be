import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { databaseFile } from './schema';
import type { Database, Statement } from './sqlite';

interface Answer {
  readonly busy?: number;
  readonly failure?: { readonly message: string; readonly sqliteExtendedCode?: number };
}

/** How many bytes are committed between two looks at the size of the log. */
const LOOK_EVERY_BYTES = 1024 * 1024;
const FRAME_BYTES = 4096 + 24;

/**
 * Moves the write-ahead log into the database before it grows without bound. The log's file keeps its
 * size: it is written over from its start (see durability.ts).
 */
export class Checkpointer {
  private readonly worker: Worker;
  private readonly exited: Promise<unknown>;
  private readonly size: Statement;
  private state: 'resting' | 'moving' | 'moved' = 'resting';
  private unseenBytes = 0;
  private restBytes = 0;
  walBytes = 0;

  constructor(
    directory: string,
    database: Database,
    private readonly limitBytes: number,
    private readonly failed: (error: Error) => void,
  ) {
    this.size = database.prepare('PRAGMA wal_checkpoint(NOOP)');
    this.worker = new Worker(join(__dirname, 'checkpoint-worker.js'), {
      workerData: databaseFile(directory),
    });
    this.worker.on('error', failed);
    this.exited = new Promise((resolve) => this.worker.once('exit', resolve));
    this.worker.unref();
    this.look();
  }

  committed(bytes: number): void {
    this.unseenBytes += bytes;
  }

  /**
   * Called between groups. First a passive checkpoint moves the bulk while appends go on; when it is
   * done, the returned promise holds appends back for the short rest, so that the log can start over: a
   * log that is appended to all the time never could.
   */
  between(): Promise<void> | undefined {
    if (this.state === 'moved') {
      this.state = 'resting';
      return this.run('RESTART').then((answer) => this.settle(answer));
    }
    if (this.unseenBytes < LOOK_EVERY_BYTES) return undefined;
    this.look();
    if (this.state === 'resting' && this.walBytes > this.restBytes + this.limitBytes) {
      this.state = 'moving';
      this.run('PASSIVE').then((answer) => {
        if (answer.failure) this.settle(answer);
        this.state = answer.failure ? 'resting' : 'moved';
      }, this.failed);
    }
    return undefined;
  }

  private look(): void {
    this.unseenBytes = 0;
    this.walBytes = Number(this.size.get()?.[1] ?? 0) * FRAME_BYTES;
  }

  /** On a full disk the log stays as it is; the next attempt waits for it to grow as much again. */
  private settle({ failure }: Answer): void {
    if (failure) this.failed(Object.assign(new Error(failure.message), failure));
    this.restBytes = failure ? this.walBytes : 0;
  }

  async close(): Promise<void> {
    this.worker.postMessage('CLOSE');
    this.worker.ref();
    await this.exited;
  }

  private run(mode: 'PASSIVE' | 'RESTART'): Promise<Answer> {
    this.worker.postMessage(mode);
    return once(this.worker, 'message').then(([answer]) => answer as Answer);
  }
}
