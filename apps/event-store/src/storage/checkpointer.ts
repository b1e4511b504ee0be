import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { databaseFile, walFile } from './schema';

interface Answer {
  readonly busy?: number;
  readonly failure?: { readonly message: string; readonly sqliteExtendedCode?: number };
}

/** Moves the write-ahead log into the database before it grows without bound. */
export class Checkpointer {
  private readonly worker: Worker;
  private bulk: Promise<Answer> | undefined;
  private bulkDone = false;
  private lastBytes = 0;
  private readonly exited: Promise<unknown>;

  constructor(
    private readonly directory: string,
    private readonly limitBytes: number,
    private readonly failed: (error: Error) => void,
  ) {
    this.worker = new Worker(join(__dirname, 'checkpoint-worker.js'), {
      workerData: databaseFile(directory),
    });
    this.worker.on('error', failed);
    this.exited = new Promise((resolve) => this.worker.once('exit', resolve));
    this.worker.unref();
  }

  walBytes(): number {
    return statSync(walFile(this.directory)).size;
  }

  /**
   * Called between groups. First a passive checkpoint moves the bulk while appends go on; when it is
   * done, the returned promise holds appends back for the short rest, so that the log can start over: a
   * log that is appended to all the time never could.
   */
  between(): Promise<void> | undefined {
    if (this.bulkDone) {
      this.bulkDone = false;
      return this.run('TRUNCATE').then((answer) => {
        this.report(answer);
        this.lastBytes = this.walBytes();
      });
    }
    if (!this.bulk && this.walBytes() > this.lastBytes + this.limitBytes) {
      this.bulk = this.run('PASSIVE').then((answer) => {
        this.bulk = undefined;
        // A full disk fails here too: the log is kept, and the next attempt waits for it to grow again.
        if (this.report(answer)) this.bulkDone = true;
        else this.lastBytes = this.walBytes();
        return answer;
      });
    }
    return undefined;
  }

  async close(): Promise<void> {
    await this.bulk;
    this.worker.postMessage('CLOSE');
    this.worker.ref();
    await this.exited;
  }

  private report({ failure }: Answer): boolean {
    if (failure) this.failed(Object.assign(new Error(failure.message), failure));
    return failure === undefined;
  }

  private run(mode: 'PASSIVE' | 'TRUNCATE'): Promise<Answer> {
    this.worker.ref();
    const answered = once(this.worker, 'message').then(([answer]) => {
      this.worker.unref();
      return answer as Answer;
    });
    this.worker.postMessage(mode);
    return answered;
  }
}
