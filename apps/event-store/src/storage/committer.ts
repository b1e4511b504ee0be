import type { WalSync } from './durability';
import type { HighWaterMark } from './high-water-mark';
import type { EventReader } from './reader';
import { type Database, isDiskFull, isFailedSync, type Statement } from './sqlite';
import type { CommittedEvent, WriteRequest, WriteResult, Writer } from './writer';

export type Outcome =
  | WriteResult
  | { readonly kind: 'deadline_exceeded' }
  | { readonly kind: 'no_space' }
  | { readonly kind: 'failed'; readonly reason: string };

export interface Submission {
  readonly request: WriteRequest;
  readonly bytes: number;
  /** Milliseconds since the epoch. Not begun by then, the write is not done at all. */
  readonly deadlineMs: number;
  done(outcome: Outcome): void;
}

export interface Group {
  readonly writes: number;
  readonly events: number;
  /** What the group took in the log, about. */
  readonly bytes: number;
  readonly seconds: number;
}

export interface CommitterEvents {
  /** Once the events are durable, before their appends are acknowledged. */
  published(events: readonly CommittedEvent[]): void;
  /** A sync failed or worse. Nothing may be acknowledged any more: end the process. */
  fatal(error: unknown): void;
  /** The disk is at work on a group that took so many bytes of memory: a good time to tidy up. */
  syncing(bytes: number): void;
  /** Between two groups, while nothing is being written and no snapshot is pinned; a promise holds
   * the next group back. */
  idle(): Promise<void> | undefined;
  committed(group: Group): void;
  refused(error: unknown): void;
}

/** Committed, and its sync under way. */
interface StoredGroup {
  readonly submissions: readonly Submission[];
  readonly outcomes: readonly Outcome[];
  readonly events: readonly CommittedEvent[];
  readonly sync: Promise<void> | undefined;
  readonly startedMs: number;
}

/** An event dirties at least a page of its own, in the index of its stream. */
const PAGE_BYTES = 4096;
const GROUP_WRITES = 1024;
const GROUP_BYTES = 8 * 1024 * 1024;

/**
 * Group commit: one transaction and one sync for everything that arrived while the previous group was
 * being synced. No timer: an append that finds the committer idle starts at the end of the current turn
 * of the event loop.
 */
export class Committer {
  private queue: Submission[] = [];
  private running = false;
  private lastRun: Promise<void> = Promise.resolve();
  private submitted = 0;
  private answered = 0;
  private readonly waiting: { readonly target: number; resolve(): void }[] = [];
  private readonly beginWrite: Statement;
  private readonly commitWrite: Statement;
  queuedBytes = 0;

  constructor(
    private readonly database: Database,
    private readonly writer: Writer,
    private readonly reader: EventReader,
    private readonly wal: Pick<WalSync, 'sync'>,
    private readonly mark: HighWaterMark,
    private readonly events: CommitterEvents,
  ) {
    this.beginWrite = database.prepare('BEGIN IMMEDIATE');
    this.commitWrite = database.prepare('COMMIT');
  }

  submit(submission: Submission): void {
    this.queue.push(submission);
    this.submitted++;
    this.queuedBytes += submission.bytes;
    this.wake();
  }

  /** Runs `idle` even when nothing is being appended. */
  wake(): void {
    if (this.running) return;
    this.running = true;
    this.lastRun = new Promise((ended) => {
      setImmediate(() =>
        this.run()
          .catch((error) => this.events.fatal(error))
          .finally(ended),
      );
    });
  }

  /** Resolves when everything submitted so far has been answered, whatever is submitted meanwhile. */
  drained(): Promise<void> {
    const target = this.submitted;
    if (this.answered >= target) return Promise.resolve();
    return new Promise((resolve) => this.waiting.push({ target, resolve }));
  }

  /** Resolves when nothing is going on any more; nothing may be submitted after this is called. */
  stopped(): Promise<void> {
    return this.lastRun;
  }

  private async run(): Promise<void> {
    let durable: StoredGroup | undefined;
    do {
      const submissions = this.takeGroup();
      const stored = submissions.length > 0 ? this.store(submissions) : undefined;
      // The disk is already at work on the next group while this one is answered.
      if (durable) this.answer(durable);
      durable = stored;
      if (stored) await this.synced(stored);
      const housekeeping = this.events.idle();
      if (durable && (this.queue.length === 0 || housekeeping)) {
        this.answer(durable);
        durable = undefined;
      }
      await housekeeping;
    } while (this.queue.length > 0 || durable);
    this.running = false;
  }

  private takeGroup(): Submission[] {
    let bytes = 0;
    let count = 0;
    while (count < this.queue.length && count < GROUP_WRITES && bytes < GROUP_BYTES) {
      bytes += this.queue[count++]?.bytes ?? 0;
    }
    this.queuedBytes -= bytes;
    return this.queue.splice(0, count);
  }

  private store(submissions: readonly Submission[]): StoredGroup {
    const startedMs = performance.now();
    this.reader.pin();
    const outcomes = this.transact(submissions);
    const events = this.writer.takeWritten();
    const sync = events.length > 0 ? this.wal.sync() : undefined;
    this.events.syncing(submissions.reduce((sum, { bytes }) => sum + bytes, 0));
    return { submissions, outcomes, events, sync, startedMs };
  }

  private async synced({ sync, events }: StoredGroup): Promise<void> {
    const last = events.at(-1);
    if (last) {
      await sync;
      this.mark.write(last.position);
    }
    this.reader.unpin();
  }

  private answer({ submissions, outcomes, events, startedMs }: StoredGroup): void {
    if (events.length > 0) this.events.published(events);
    submissions.forEach((submission, at) => {
      submission.done(outcomes[at] ?? { kind: 'failed', reason: 'not decided' });
    });
    this.answered += submissions.length;
    while ((this.waiting[0]?.target ?? Number.POSITIVE_INFINITY) <= this.answered) {
      this.waiting.shift()?.resolve();
    }
    this.events.committed({
      writes: submissions.length,
      events: events.length,
      bytes: events.reduce((sum, { frame }) => sum + frame.length + PAGE_BYTES, 0),
      seconds: (performance.now() - startedMs) / 1000,
    });
  }

  /** All of the group in one transaction; when it cannot be stored, none of it is. */
  private transact(group: readonly Submission[]): Outcome[] {
    try {
      this.beginWrite.run();
      const now = Date.now();
      const outcomes = group.map(({ request, deadlineMs }) =>
        deadlineMs <= now ? ({ kind: 'deadline_exceeded' } as const) : this.writer.write(request),
      );
      this.commitWrite.run();
      return outcomes;
    } catch (error) {
      if (isFailedSync(error)) throw error;
      this.rollback();
      this.events.refused(error);
      const outcome: Outcome = isDiskFull(error)
        ? { kind: 'no_space' }
        : { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
      return group.map(() => outcome);
    }
  }

  private rollback(): void {
    // SQLite itself rolls back on some errors, a full disk among them.
    if (this.database.inTransaction()) this.database.exec('ROLLBACK');
    this.writer.reset();
  }
}
