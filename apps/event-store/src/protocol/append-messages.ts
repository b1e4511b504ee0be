import {
  decodeProposedEvent,
  decodeStreamName,
  decodeUuid,
  type ExpectedRevision,
  type ProposedEvent,
} from './proposed-event';
import { MalformedMessage, Reader } from './wire';

export interface AppendOptions {
  readonly stream: string;
  readonly expected: ExpectedRevision;
  /** Milliseconds since the epoch; infinite when the client names none. */
  readonly deadlineMs: number;
}

/** One message of a BatchAppend call; an append may be spread over several, the last one final. */
export interface BatchAppendPart {
  readonly correlationId: string;
  readonly options?: AppendOptions;
  readonly events: readonly ProposedEvent[];
  readonly isFinal: boolean;
}

export function decodeBatchAppendReq(message: Buffer): BatchAppendPart {
  const reader = new Reader(message);
  let correlationId: string | undefined;
  let options: AppendOptions | undefined;
  let isFinal = false;
  const events: ProposedEvent[] = [];
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) correlationId = decodeUuid(reader.bytes());
    else if (field === 2) options = decodeAppendOptions(reader.bytes());
    else if (field === 3) events.push(decodeProposedEvent(reader.bytes()));
    else if (field === 4) isFinal = reader.number() !== 0;
    else reader.skip();
  }
  if (correlationId === undefined) throw new MalformedMessage('no correlation id');
  return { correlationId, options, events, isFinal };
}

/** Whose append a message is, when the rest of it cannot be decoded; undefined when not even that can. */
export function correlationIdIn(message: Buffer): string | undefined {
  try {
    const reader = new Reader(message);
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) return decodeUuid(reader.bytes());
      reader.skip();
    }
  } catch (error) {
    if (!(error instanceof MalformedMessage)) throw error;
  }
  return undefined;
}

/** A message of a unary Append call: first the options, then one event each. */
export function decodeAppendReq(message: Buffer): AppendOptions | ProposedEvent {
  const reader = new Reader(message);
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) return decodeAppendOptions(reader.bytes());
    if (field === 2) return decodeProposedEvent(reader.bytes());
    reader.skip();
  }
  throw new MalformedMessage('neither options nor an event');
}

/** The options of Append, BatchAppend, Delete and Tombstone have the same fields. */
export function decodeAppendOptions(message: Buffer): AppendOptions {
  const reader = new Reader(message);
  let stream = '';
  let expected: ExpectedRevision | undefined;
  let deadlineMs = Number.POSITIVE_INFINITY;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) stream = decodeStreamName(reader.bytes());
    else if (field === 2) expected = reader.number();
    else if (field === 3) expected = skipped(reader, 'no_stream');
    else if (field === 4) expected = skipped(reader, 'any');
    else if (field === 5) expected = skipped(reader, 'stream_exists');
    else if (field === 6) deadlineMs = decodeSecondsAndNanos(reader.bytes());
    else if (field === 7) deadlineMs = Date.now() + decodeSecondsAndNanos(reader.bytes());
    else reader.skip();
  }
  if (stream === '') throw new MalformedMessage('no stream is named');
  if (expected === undefined) throw new MalformedMessage('no expected revision is given');
  return { stream, expected, deadlineMs };
}

function skipped(reader: Reader, kind: ExpectedRevision): ExpectedRevision {
  reader.skip();
  return kind;
}

/** `Timestamp` and `Duration`. A negative number of seconds reads as one beyond any real time. */
function decodeSecondsAndNanos(message: Buffer): number {
  const reader = new Reader(message);
  let seconds = 0;
  let nanos = 0;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) seconds = reader.number();
    else if (field === 2) nanos = reader.number();
    else reader.skip();
  }
  if (seconds >= 2 ** 63) return 0;
  return seconds * 1000 + Math.floor(nanos / 1e6);
}
