import {
  type AppendOptions,
  type BatchAppendPart,
  decodeAppendReq,
  decodeBatchAppendReq,
} from '../protocol/append-messages';
import { appendResponse, batchAppendResponse } from '../protocol/append-responses';
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
import type { Committer, Outcome } from '../storage/committer';
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

  const begin = (part: BatchAppendPart): PendingAppend => {
    if (!part.options) throw new MalformedMessage('the first part of an append has no options');
    if (pending.size >= MAX_PARTIAL_APPENDS) throw tooMuchBegun();
    const append = new PendingAppend(part.options);
    partialBytes += append.bytesInMemory;
    pending.set(part.correlationId, append);
    return append;
  };

  const receive = (part: BatchAppendPart): void => {
    const append = pending.get(part.correlationId) ?? begin(part);
    partialBytes -= append.bytesInMemory;
    append.add(part.events);
    if (!part.isFinal) {
      partialBytes += append.bytesInMemory;
      if (partialBytes > MAX_PARTIAL_BYTES) throw tooMuchBegun();
      return;
    }
    pending.delete(part.correlationId);
    const { options, events, bytesInMemory: bytes } = append;
    const answer = (outcome: Parameters<typeof batchAppendResponse>[2]) =>
      call.send(batchAppendResponse(part.correlationId, options, outcome));
    if (append.isTooLarge) {
      answer({ kind: 'too_large' });
      return;
    }
    committer.submit({
      request: { kind: 'append', stream: options.stream, expected: options.expected, events },
      bytes,
      deadlineMs: options.deadlineMs,
      done: (outcome) => {
        unanswered--;
        call.guard(() => answer(outcome));
      },
    });
    unanswered++;
    const isFarAhead =
      committer.queuedBytes >= MAX_QUEUED_BYTES ||
      unanswered >= MAX_UNANSWERED ||
      call.bufferedBytes >= MAX_UNTAKEN_BYTES;
    if (isFarAhead) holdBack(call, committer);
  };

  call.serve({
    message: (message) => receive(decoded(() => decodeBatchAppendReq(message))),
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
      else if (!pending)
        throw new CallError(Status.INVALID_ARGUMENT, 'an event before the options');
      else pending.add([part]);
    },
    end: () => {
      if (!pending) throw new CallError(Status.INVALID_ARGUMENT, 'no options');
      if (pending.isTooLarge) throw appendTooLarge();
      const { options, events, bytesInMemory: bytes } = pending;
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

/** The status of a call that wrote nothing. */
export function refusal(
  stream: string,
  outcome: Exclude<Outcome, { kind: 'written' | 'wrong_revision' }>,
): CallError {
  switch (outcome.kind) {
    case 'stream_deleted':
      return streamDeleted(stream);
    case 'deadline_exceeded':
      return new CallError(Status.DEADLINE_EXCEEDED, 'deadline exceeded');
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
