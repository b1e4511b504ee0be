import {
  type AppendOptions,
  type BatchAppendPart,
  correlationIdIn,
  decodeAppendReq,
  decodeBatchAppendReq,
} from '../protocol/append-messages';
import {
  type AppendOutcome,
  appendResponse,
  batchAppendResponse,
} from '../protocol/append-responses';
import type { ProposedEvent } from '../protocol/proposed-event';
import {
  appendTooLarge,
  CallError,
  MAX_APPEND_BYTES,
  NO_SPACE,
  Status,
  streamDeleted,
} from '../protocol/status';
import { MalformedMessage } from '../protocol/wire';
import type { Committer } from '../storage/committer';
import type { Call, CallHandler } from '../transport/call';

/** What appends begun and not finished may take, over one call. */
const MAX_PARTIAL_APPENDS = 1000;
const MAX_PARTIAL_BYTES = 16 * 1024 * 1024;
/** Reading stops when this much waits to be committed in the whole server, */
const MAX_QUEUED_BYTES = 32 * 1024 * 1024;
/** when this many appends of one call wait for their answer, and when its client does not take answers. */
const MAX_UNANSWERED = 1024;
const MAX_UNTAKEN_BYTES = 256 * 1024;
/** A turn of the event loop is not to be spent on one append. */
const MAX_EVENTS = 10_000;
/** About what an event takes in memory besides its own bytes. */
const EVENT_OVERHEAD_BYTES = 512;

const UNKNOWN_OPTIONS: AppendOptions = { stream: '', expected: 'any', deadlineMs: 0 };

/** Counted as EventStoreDB counts: what the events themselves take. */
const sizeOf = (event: ProposedEvent): number =>
  event.data.length + event.customMetadata.length + 2 * event.type.length;

/** An append as its parts come in. */
class PendingAppend {
  readonly events: ProposedEvent[] = [];
  private bytes = 0;
  private count = 0;
  constructor(readonly options: AppendOptions) {}

  add(events: readonly ProposedEvent[]): void {
    for (const event of events) {
      this.bytes += sizeOf(event);
      this.count++;
      // Beyond the limit it will be refused: what it carries need not be kept.
      if (this.isTooLarge) this.events.length = 0;
      else this.events.push(event);
    }
  }

  get isTooLarge(): boolean {
    return this.bytes > MAX_APPEND_BYTES || this.count > MAX_EVENTS;
  }

  get bytesInMemory(): number {
    return this.isTooLarge ? 0 : this.bytes + (this.count + 1) * EVENT_OVERHEAD_BYTES;
  }
}

/** One long call carries many appends, each answered by its correlation id in the order of commit. */
export function batchAppend(call: Call, committer: Committer): void {
  const pending = new Map<string, PendingAppend>();
  let partialBytes = 0;
  let unanswered = 0;

  const begin = (correlationId: string, options: AppendOptions | undefined): PendingAppend => {
    if (!options) throw invalid('the first part of an append has no options');
    if (pending.size >= MAX_PARTIAL_APPENDS) throw tooMuchBegun();
    const append = new PendingAppend(options);
    partialBytes += append.bytesInMemory;
    pending.set(correlationId, append);
    return append;
  };

  const submit = (
    correlationId: string,
    { options, events, bytesInMemory }: PendingAppend,
  ): void => {
    committer.submit({
      request: { kind: 'append', stream: options.stream, expected: options.expected, events },
      bytes: bytesInMemory,
      deadlineMs: options.deadlineMs,
      done: (outcome) => {
        unanswered--;
        call.guard(() => call.send(batchAppendResponse(correlationId, options, outcome)));
      },
    });
    unanswered++;
    const isFarAhead =
      committer.queuedBytes >= MAX_QUEUED_BYTES ||
      unanswered >= MAX_UNANSWERED ||
      call.bufferedBytes >= MAX_UNTAKEN_BYTES;
    if (isFarAhead) holdBack(call, committer);
  };

  const receive = ({ correlationId, isFinal, ...part }: BatchAppendPart): void => {
    const append = pending.get(correlationId) ?? begin(correlationId, part.options);
    partialBytes -= append.bytesInMemory;
    append.add(part.events);
    if (!isFinal) {
      partialBytes += append.bytesInMemory;
      if (partialBytes > MAX_PARTIAL_BYTES) throw tooMuchBegun();
      return;
    }
    pending.delete(correlationId);
    const refused = refusedUnseen(append, append.options.deadlineMs);
    if (refused) call.send(batchAppendResponse(correlationId, append.options, refused));
    else submit(correlationId, append);
  };

  call.serve({
    message: (message) => {
      try {
        receive(decodeBatchAppendReq(message));
      } catch (error) {
        // One bad append is refused by itself: ending the call would fail all the others under way.
        const correlationId = error instanceof MalformedMessage && correlationIdIn(message);
        if (!correlationId) throw error;
        partialBytes -= pending.get(correlationId)?.bytesInMemory ?? 0;
        pending.delete(correlationId);
        const outcome = { kind: 'invalid', reason: error.message } as const;
        call.send(batchAppendResponse(correlationId, UNKNOWN_OPTIONS, outcome));
      }
    },
    end: () => {
      committer.drained().then(() => call.finish(Status.OK));
    },
  });
}

/** Unary Append: options, events one by one, and one answer. */
export function append(call: Call, committer: Committer): void {
  let pending: PendingAppend | undefined;
  const handler: CallHandler = {
    message: (message) => {
      const part = decoded(() => decodeAppendReq(message));
      if ('stream' in part) pending = new PendingAppend(part);
      else if (!pending) throw invalid('an event before the options');
      else pending.add([part]);
    },
    end: () => {
      if (!pending) throw invalid('no options');
      const { options, events, bytesInMemory: bytes } = pending;
      const refused = refusedUnseen(pending, call.deadlineMs);
      if (refused) throw refusal(options.stream, refused);
      committer.submit({
        request: { kind: 'append', stream: options.stream, expected: options.expected, events },
        bytes,
        deadlineMs: call.deadlineMs,
        done: (outcome) =>
          call.guard(() => {
            if (outcome.kind !== 'written' && outcome.kind !== 'wrong_revision') {
              throw refusal(options.stream, outcome);
            }
            call.send(appendResponse(options.expected, outcome));
            call.finish(Status.OK);
          }),
      });
    },
  };
  call.serve(handler);
}

/** What needs no look at the stream to be refused. */
function refusedUnseen(
  append: PendingAppend,
  deadlineMs: number,
): { readonly kind: 'deadline_exceeded' | 'too_large' } | undefined {
  if (deadlineMs <= Date.now()) return { kind: 'deadline_exceeded' };
  return append.isTooLarge ? { kind: 'too_large' } : undefined;
}

/** The status of a call that wrote nothing. */
export function refusal(
  stream: string,
  outcome: Exclude<AppendOutcome, { kind: 'written' | 'wrong_revision' }>,
): CallError {
  switch (outcome.kind) {
    case 'stream_deleted':
      return streamDeleted(stream);
    case 'deadline_exceeded':
      return new CallError(Status.DEADLINE_EXCEEDED, 'deadline exceeded');
    case 'too_large':
      return appendTooLarge();
    case 'invalid':
      return invalid(outcome.reason);
    case 'no_space':
      return new CallError(Status.RESOURCE_EXHAUSTED, NO_SPACE);
    case 'failed':
      return new CallError(Status.INTERNAL, outcome.reason);
  }
}

/** A message that cannot be read is the client's fault and says so. */
export function decoded<Message>(decode: () => Message): Message {
  try {
    return decode();
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    throw new CallError(Status.INVALID_ARGUMENT, detail);
  }
}

const invalid = (detail: string): CallError => new CallError(Status.INVALID_ARGUMENT, detail);

const tooMuchBegun = (): CallError =>
  new CallError(Status.RESOURCE_EXHAUSTED, 'too many appends begun and not finished');

/** Writers faster than the disk, or that do not take their answers, wait in their own process. */
function holdBack(call: Call, committer: Committer): void {
  call.pause();
  committer
    .drained()
    .then(() => call.writable())
    .then(() => call.resume());
}
