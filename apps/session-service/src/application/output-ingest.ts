import { AppendTooLarge } from '@vmux/event-store';
import { Failure, type OutputAccepted, type OutputReport, type Refused } from '@vmux/events';
import type { LogWriting } from './log-writing';
import { decideBatch } from './output-batch';

export interface IngestLimits {
  /** Appends under way at once, over all sessions. */
  readonly maxAppends: number;
  /** Of one append. Below the store's limit of 1 MiB by what marks and metadata need. */
  readonly maxAppendBytes: number;
  readonly maxSessionBytes: number;
  readonly maxTotalBytes: number;
}

export const INGEST_LIMITS: IngestLimits = {
  maxAppends: 4,
  maxAppendBytes: 768 * 1024,
  maxSessionBytes: 4 * 1024 * 1024,
  maxTotalBytes: 64 * 1024 * 1024,
};

const LARGE_APPEND_BYTES = 64 * 1024;
/** How long a session that writes much rests beside others, in times that its append took. */
const PACE = 2;
const LONGEST_REST_MS = 500;

type Reply = OutputAccepted | Refused;

interface Waiting {
  readonly report: OutputReport;
  readonly bytes: number;
  readonly settle: (reply: Reply) => void;
  readonly fail: (fault: unknown) => void;
}

interface Line {
  readonly waiting: Waiting[];
  /** Waiting and being written. */
  bytes: number;
  writing: boolean;
}

/**
 * Output on its way into logs. A session's next append takes what arrived during its last one; sessions
 * take turns, so that one that never stops writing delays another by no more than an append. Beside others
 * it rests after each large append: turns share out the appends alone, and what an append costs on the way
 * and in the store would otherwise never leave off.
 */
export class OutputIngest {
  private readonly lines = new Map<string, Line>();
  private readonly turns: string[] = [];
  private totalBytes = 0;
  private appends = 0;

  constructor(
    private readonly writing: LogWriting,
    private readonly hasRoom: () => boolean,
    /** The log is closed and yet its sandbox writes: it was given up half. */
    private readonly onClosedLog: (sessionId: string, epoch: number) => void,
    private readonly limits: IngestLimits = INGEST_LIMITS,
    /** Whether other sessions do something now. */
    private readonly isCrowded: (sessionId: string) => boolean = () => false,
  ) {}

  get bytesInFlight(): number {
    return this.totalBytes;
  }

  /** Answers once the output is durable: a sender that waits for the answer goes at the store's pace. */
  take(report: OutputReport): Promise<Reply> {
    const bytes = sizeOf(report);
    const line = this.admitted(report.sessionId, bytes);
    return new Promise((settle, fail) => {
      line.waiting.push({ report, bytes, settle, fail });
      line.bytes += bytes;
      this.totalBytes += bytes;
      if (!line.writing && line.waiting.length === 1) this.turns.push(report.sessionId);
      this.next();
    });
  }

  private admitted(sessionId: string, bytes: number): Line {
    if (!this.hasRoom())
      throw new Failure('no_space', 'the store is short of room: hold output back', true, 5000);
    const line = this.lines.get(sessionId) ?? { waiting: [], bytes: 0, writing: false };
    const { maxSessionBytes, maxTotalBytes } = this.limits;
    const share = Math.min(maxSessionBytes, maxTotalBytes / Math.max(1, this.lines.size));
    const fair = line.bytes === 0 || line.bytes + bytes <= share;
    if (!fair || this.totalBytes + bytes > 2 * maxTotalBytes)
      throw new Failure('overloaded', 'wait for answers before sending more', true, 100);
    this.lines.set(sessionId, line);
    return line;
  }

  private next(): void {
    while (this.appends < this.limits.maxAppends) {
      const sessionId = this.turns.shift();
      const line = sessionId === undefined ? undefined : this.lines.get(sessionId);
      if (sessionId === undefined || !line) return;
      this.appends += 1;
      line.writing = true;
      const startedAt = performance.now();
      void this.turn(sessionId, line).then((bytes) => {
        this.appends -= 1;
        const rests = bytes > LARGE_APPEND_BYTES && this.isCrowded(sessionId);
        const restMs = Math.min(LONGEST_REST_MS, (performance.now() - startedAt) * PACE);
        if (rests) setTimeout(() => this.done(sessionId, line), restMs);
        else this.done(sessionId, line);
        this.next();
      });
    }
  }

  private done(sessionId: string, line: Line): void {
    line.writing = false;
    if (line.waiting.length > 0) this.turns.push(sessionId);
    else this.lines.delete(sessionId);
    this.next();
  }

  /** Returns how much it wrote. */
  private async turn(sessionId: string, line: Line): Promise<number> {
    const batch = this.batchOf(line);
    const bytes = batch.reduce((sum, each) => sum + each.bytes, 0);
    try {
      const replies = await this.written(
        sessionId,
        batch.map(({ report }) => report),
      );
      for (const [index, { report, settle, fail }] of batch.entries()) {
        const reply = replies[index];
        if (reply && 'refused' in reply && reply.refused?.code === 'log_closed')
          this.onClosedLog(sessionId, report.epoch);
        if (reply) settle(reply);
        else fail(new Error('output was written and not answered'));
      }
    } catch (fault) {
      for (const { fail } of batch) fail(fault);
    }
    line.bytes -= bytes;
    this.totalBytes -= bytes;
    return bytes;
  }

  /** Marks of a session with very many open execs can make an append too large: then it is cut in two. */
  private async written(
    sessionId: string,
    reports: readonly OutputReport[],
  ): Promise<readonly Reply[]> {
    try {
      return await this.writing.write(sessionId, (log, fence) => {
        const { events, replies, refused } = decideBatch(reports, log, fence);
        return { events, result: replies, refused };
      });
    } catch (fault) {
      if (!(fault instanceof AppendTooLarge)) throw fault;
      const [first, ...more] = reports;
      if (!first || (more.length === 0 && first.items.length < 2)) throw fault;
      if (more.length === 0) return [await this.writtenInTwo(sessionId, first)];
      const half = Math.ceil(reports.length / 2);
      const before = await this.written(sessionId, reports.slice(0, half));
      return [...before, ...(await this.written(sessionId, reports.slice(half)))];
    }
  }

  private async writtenInTwo(sessionId: string, report: OutputReport): Promise<Reply> {
    const half = Math.ceil(report.items.length / 2);
    const parts = [report.items.slice(0, half), report.items.slice(half)];
    let last: Reply = { ok: true, next: {}, refused: null };
    for (const items of parts) {
      const [reply] = await this.written(sessionId, [{ ...report, items }]);
      if (!reply?.ok) return reply ?? last;
      last = { ...reply, next: { ...last.next, ...reply.next } };
      if (reply.refused) return last;
    }
    return last;
  }

  private batchOf(line: Line): readonly Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const each of line.waiting) {
      if (count > 0 && bytes + each.bytes > this.limits.maxAppendBytes) break;
      bytes += each.bytes;
      count += 1;
    }
    return line.waiting.splice(0, count);
  }
}

/** With what an event costs beside its bytes. */
const sizeOf = ({ items }: OutputReport): number =>
  items.reduce((sum, item) => sum + 256 + (item.kind === 'chunk' ? item.bytes.length : 0), 0);
