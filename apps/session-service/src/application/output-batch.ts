import {
  type LogEvent,
  MAX_CHUNK_BYTES,
  type OutputAccepted,
  type OutputChunk,
  type OutputItem,
  type OutputReport,
  Refusal,
  type Refused,
  replyOf,
} from '@vmux/events';
import { decideOutput, type LogFence } from '../domain/log-fold';
import { evolveLog, type LogState } from '../domain/log-state';

export interface BatchDecision {
  readonly events: readonly LogEvent[];
  /** One for each report, true once the events are appended. */
  readonly replies: readonly (OutputAccepted | Refused)[];
  readonly refused: boolean;
}

/** Reports that wait together become one append; what lies side by side becomes one event. */
export function decideBatch(
  reports: readonly OutputReport[],
  log: LogState,
  fence: LogFence,
): BatchDecision {
  const [first] = reports;
  if (first && reports.every((report) => sameWriter(report, first))) {
    const merged = { ...first, items: joined(reports.flatMap(({ items }) => items)) };
    const decision = decided([merged], log, fence);
    const [reply] = decision.replies;
    if (!decision.refused && reply?.ok)
      return { ...decision, replies: reports.map((report) => answerTo(report, reply.next)) };
  }
  // One that is refused must not take the others with it.
  const separate = reports.map((report) => ({ ...report, items: joined(report.items) }));
  return decided(separate, log, fence);
}

function decided(
  reports: readonly OutputReport[],
  start: LogState,
  fence: LogFence,
): BatchDecision {
  const events: LogEvent[] = [];
  const replies: (OutputAccepted | Refused)[] = [];
  let log = start;
  let refused = false;
  for (const report of reports) {
    try {
      const decision = decideOutput(report, log, fence);
      for (const event of decision.events) {
        log = evolveLog(log, { event, revision: log.revision + 1 });
        events.push(event);
      }
      refused ||= decision.refused !== null;
      replies.push({ ok: true, next: decision.next, refused: bodyOf(decision.refused) });
    } catch (fault) {
      const reply = replyOf(fault);
      if (!('refused' in reply)) throw fault;
      refused = true;
      replies.push(reply);
    }
  }
  return { events, replies, refused };
}

const sameWriter = (one: OutputReport, other: OutputReport): boolean =>
  one.runnerId === other.runnerId && one.epoch === other.epoch && one.instance === other.instance;

const answerTo = (report: OutputReport, next: OutputAccepted['next']): OutputAccepted => {
  const mentioned = new Set(report.items.map(({ execId }) => execId));
  const own = Object.entries(next).filter(([execId]) => mentioned.has(execId));
  return { ok: true, next: Object.fromEntries(own), refused: null };
};

const bodyOf = (refusal: Refusal | null): OutputAccepted['refused'] =>
  refusal && { code: refusal.code, message: refusal.message, facts: refusal.facts };

/** Chunks that continue one another, up to the most that an event may carry. */
function joined(items: readonly OutputItem[]): readonly OutputItem[] {
  const result: OutputItem[] = [];
  let run: OutputChunk[] = [];
  let runBytes = 0;
  const flush = () => {
    const [first] = run;
    if (first && run.length === 1) result.push(first);
    else if (first)
      result.push({
        ...first,
        bytes: Buffer.concat(
          run.map(({ bytes }) => bytes),
          runBytes,
        ),
      });
    run = [];
    runBytes = 0;
  };
  for (const item of items) {
    const first = run[0];
    if (item.kind !== 'chunk') {
      flush();
      result.push(item);
      continue;
    }
    const continues =
      first?.execId === item.execId &&
      first.stream === item.stream &&
      first.offset + runBytes === item.offset &&
      runBytes + item.bytes.length <= MAX_CHUNK_BYTES;
    if (!continues) flush();
    run.push(item);
    runBytes += item.bytes.length;
  }
  flush();
  return result;
}
