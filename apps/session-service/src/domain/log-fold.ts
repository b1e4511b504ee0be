import {
  LOG_MARK_EVERY,
  type LogEvent,
  type LogMark,
  type LogPolicy,
  type OutputChunk,
  type OutputGap,
  type OutputItem,
  type OutputReport,
  type OutputResize,
  Refusal,
  type Sizes,
} from '@vmux/events';
import { cursorIn, evolveLog, type LogState, sizesIn } from './log-state';
import { endedExec, isLiving, openExecs, type Session } from './state';

/** What the log has to know of its session: who may write, and about which execs. */
export interface LogFence {
  /** Of the session's state. */
  readonly revision: number;
  readonly writer: {
    readonly runnerId: string;
    readonly epoch: number;
    readonly instance: string;
  } | null;
  /** Dispatched to the writer and not ended: the revision of each one's `ExecIssued`. */
  readonly open: Readonly<Record<string, number>>;
  /** Undefined for one that is not known to have ended. */
  readonly endedSizes: (execId: string) => Sizes | undefined;
  readonly policy: LogPolicy;
}

const nobody = (): undefined => undefined;
const NO_POLICY: LogPolicy = { budgetBytes: 1_048_576, whenFull: 'block' };

export function logFenceOf(session: Session): LogFence {
  if (!isLiving(session))
    return {
      revision: session.revision,
      writer: null,
      open: {},
      endedSizes: nobody,
      policy: NO_POLICY,
    };
  const { revision, current, spec } = session;
  const open = openExecs(session)
    .filter((exec) => exec.epoch !== null && exec.epoch === current?.epoch)
    .map((exec) => [exec.execId, exec.issued]);
  return {
    revision,
    writer: current,
    open: Object.fromEntries(open),
    endedSizes: (execId) => endedExec(session, execId)?.sizes,
    policy: spec.log,
  };
}

export interface OutputDecision {
  readonly events: readonly LogEvent[];
  /** By exec: everything before these offsets is in the log once the events are appended. */
  readonly next: Readonly<Record<string, Sizes>>;
  /** Why the rest of the report was not taken. */
  readonly refused: Refusal | null;
}

/** Takes of a report what follows on what the log has, in order, up to the first thing that does not. */
export function decideOutput(report: OutputReport, log: LogState, fence: LogFence): OutputDecision {
  notBehind(fence, log);
  mayWrite(report, log, fence);
  const page = new Page(log, fence);
  if (log.epoch < report.epoch) page.mark({ epoch: report.epoch, instance: report.instance });
  const refused = refusalOf(() => {
    for (const item of report.items) take(item, page, fence);
  });
  if (page.hasOutput) truncateTo(fence.policy, page);
  const events = page.hasOutput ? page.events : [];
  return { events, next: offsetsAfter(report, page.log, fence), refused };
}

/** No more output of this epoch. Closing twice is closing. */
export function closeLog(
  log: LogState,
  fence: LogFence,
  { epoch, instance }: { readonly epoch: number; readonly instance: string },
  at: number,
): readonly LogEvent[] {
  if (log.epoch > epoch || (log.epoch === epoch && log.closed)) return [];
  notBehind(fence, log);
  const page = new Page(log, fence, at);
  page.mark({ epoch, instance, closed: true });
  return page.events;
}

/** A mark left out streams that a later state of the session knew to be ended. */
function notBehind({ revision }: LogFence, { sessionRevision }: LogState): void {
  if (revision < sessionRevision)
    throw new Refusal(
      'session_behind',
      'read the head of the session’s stream, then decide again',
      {
        revision,
        expected: sessionRevision,
      },
    );
}

function mayWrite(report: OutputReport, log: LogState, { writer }: LogFence): void {
  const { epoch, instance } = report;
  if (!writer || writer.epoch !== epoch || writer.instance !== instance || log.epoch > epoch)
    throw new Refusal('stale_epoch', 'this sandbox is no longer the session’s: destroy it', {
      epoch,
      instance,
      currentEpoch: writer?.epoch ?? null,
    });
  if (writer.runnerId !== report.runnerId)
    throw new Refusal('wrong_runner', 'another runner has this sandbox now: let go of it', {
      epoch,
    });
  if (log.epoch === epoch && log.closed)
    throw new Refusal(
      'log_closed',
      `the log of epoch ${epoch} is closed: its sandbox is given up`,
      {
        epoch,
      },
    );
}

function take(item: OutputItem, page: Page, fence: LogFence): void {
  const issued = fence.open[item.execId];
  if (issued === undefined) passOver(item, fence);
  else if (item.kind === 'chunk') takeChunk(item, issued, page, fence.policy);
  else if (item.kind === 'gap') takeGap(item, issued, page);
  else takeResize(item, issued, page);
}

/** Output that came before its exec ended and comes again is acknowledged without effect. */
function passOver(item: OutputItem, fence: LogFence): void {
  const { execId } = item;
  const sizes = fence.endedSizes(execId);
  if (!sizes)
    throw new Refusal('exec_not_found', `${execId} does not run in this sandbox`, { execId });
  if (item.kind !== 'resize' && endOf(item) > sizes[item.stream])
    throw new Refusal('exec_ended', `${execId} has ended with less output than this`, {
      execId,
      stream: item.stream,
      size: sizes[item.stream],
    });
}

function takeChunk(chunk: OutputChunk, issued: number, page: Page, policy: LogPolicy): void {
  const { execId, stream, offset, at } = chunk;
  const next = sizesIn(page.log, execId)[stream];
  if (endOf(chunk) <= next) return;
  expectNoGap(execId, stream, offset, next);
  const bytes = chunk.bytes.subarray(next - offset);
  const { sessionOffset, firstOffset } = page.log;
  if (
    policy.whenFull === 'block' &&
    sessionOffset + bytes.length - firstOffset > policy.budgetBytes
  )
    throw new Refusal('log_full', 'the log has reached its budget: hold the output back', {
      budgetBytes: policy.budgetBytes,
    });
  page.write({ type: 'LogChunk', execId, stream, offset: next, sessionOffset, at, issued, bytes });
}

function takeGap(gap: OutputGap, issued: number, page: Page): void {
  const { execId, stream, from, to, reason, at } = gap;
  const next = sizesIn(page.log, execId)[stream];
  if (to <= next) return;
  expectNoGap(execId, stream, from, next);
  const { sessionOffset } = page.log;
  page.write({ type: 'LogGap', execId, stream, from: next, to, sessionOffset, reason, at, issued });
}

function takeResize(resize: OutputResize, issued: number, page: Page): void {
  const { kind: _, ...data } = resize;
  const { resizes, next } = cursorIn(page.log, resize.execId, issued);
  if (resize.number < resizes) return;
  expectNoGap(resize.execId, 'pty', resize.offset, next.pty);
  const { sessionOffset } = page.log;
  page.write({ type: 'TerminalResized', ...data, sessionOffset, issued });
}

function expectNoGap(execId: string, stream: string, offset: number, expected: number): void {
  if (offset > expected)
    throw new Refusal('output_gap', `send ${stream} of ${execId} from ${expected} on`, {
      execId,
      stream,
      offset,
      expected,
    });
}

/** Drops the oldest segments until a sixteenth of the budget is free again. */
function truncateTo({ budgetBytes, whenFull }: LogPolicy, page: Page): void {
  const { sessionOffset, firstOffset, segments } = page.log;
  if (whenFull !== 'truncate' || sessionOffset - firstOffset <= budgetBytes) return;
  const wanted = sessionOffset - budgetBytes + Math.floor(budgetBytes / SEGMENTS);
  const from = segments.find((each) => each.sessionOffset >= wanted) ?? segments.at(-1);
  if (!from || from.sessionOffset <= firstOffset) return;
  page.write({
    type: 'LogTruncated',
    revision: from.revision,
    firstOffset: from.sessionOffset,
    droppedBytes: from.sessionOffset - firstOffset,
    at: page.at,
  });
}

const SEGMENTS = 16;

/** Events to append, with the marks that belong between them. */
class Page {
  readonly events: LogEvent[] = [];
  hasOutput = false;

  constructor(
    public log: LogState,
    private readonly fence: LogFence,
    public at = 0,
  ) {}

  write(event: LogEvent): void {
    this.hasOutput = true;
    this.at = Math.max(this.at, event.at);
    if ((this.log.revision + 1) % LOG_MARK_EVERY === 0 || this.segmentIsFull()) this.mark({});
    this.push(event);
  }

  mark(change: Partial<Pick<LogMark, 'epoch' | 'instance' | 'closed'>>): void {
    const { revision, segments, ...log } = this.log;
    const opened = change.epoch !== undefined ? { closed: false } : {};
    const segment = { revision: revision + 1, sessionOffset: log.sessionOffset };
    this.push({
      type: 'LogMark',
      ...log,
      ...opened,
      ...change,
      streams: this.openStreams(),
      sessionRevision: this.fence.revision,
      segments: segments.length === 0 || this.segmentIsFull() ? [...segments, segment] : segments,
      at: this.at,
    });
  }

  private segmentIsFull(): boolean {
    const start = this.log.segments.at(-1)?.sessionOffset ?? this.log.sessionOffset;
    return this.log.sessionOffset - start >= this.fence.policy.budgetBytes / SEGMENTS;
  }

  /** Without those of ended execs; one that was issued after the fence's state cannot be judged by it. */
  private openStreams(): LogState['streams'] {
    const { open, revision } = this.fence;
    const entries = Object.entries(this.log.streams);
    return Object.fromEntries(
      entries.filter(([execId, { issued }]) => Object.hasOwn(open, execId) || issued > revision),
    );
  }

  private push(event: LogEvent): void {
    this.events.push(event);
    this.log = evolveLog(this.log, { event, revision: this.log.revision + 1 });
  }
}

const endOf = (item: OutputChunk | OutputGap): number =>
  item.kind === 'chunk' ? item.offset + item.bytes.length : item.to;

const offsetsAfter = (
  report: OutputReport,
  log: LogState,
  fence: LogFence,
): OutputDecision['next'] =>
  Object.fromEntries(
    report.items.map(({ execId }) => [execId, fence.endedSizes(execId) ?? sizesIn(log, execId)]),
  );

function refusalOf(act: () => void): Refusal | null {
  try {
    act();
    return null;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}
