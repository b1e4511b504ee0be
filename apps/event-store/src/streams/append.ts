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

/** Appends under way over one call, and bytes of requests in the whole server, before reading stops. */
const MAX_PARTIAL_APPENDS = 1000;
const MAX_QUEUED_BYTES = 32 * 1024 * 1024;

/** Counted as EventStoreDB counts: what the events themselves take. */
const sizeOf = (event: ProposedEvent): number =>
  event.data.length + event.customMetadata.length + 2 * event.type.length;

/** An append as its parts come in. */
class PendingAppend {
  readonly events: ProposedEvent[] = [];
  bytes = 0;
  constructor(readonly options: AppendOptions) {}

  add(events: readonly ProposedEvent[]): void {
    for (const event of events) {
      this.bytes += sizeOf(event);
      // Beyond the limit it will be refused: what it carries need not be kept.
      if (this.isTooLarge) this.events.length = 0;
      else this.events.push(event);
    }
  }

  get isTooLarge(): boolean {
    return this.bytes > MAX_APPEND_BYTES;
  }
}

/** One long call carries many appends, each answered by its correlation id in the order of commit. */
export function batchAppend(call: Call, committer: Committer): void {
  const pending = new Map<string, PendingAppend>();

  const begin = (part: BatchAppendPart): PendingAppend => {
    if (!part.options) throw new MalformedMessage('the first part of an append has no options');
    if (pending.size >= MAX_PARTIAL_APPENDS) {
      throw new CallError(Status.RESOURCE_EXHAUSTED, 'too many appends begun and not finished');
    }
    const append = new PendingAppend(part.options);
    pending.set(part.correlationId, append);
    return append;
  };

  const receive = (part: BatchAppendPart): void => {
    const append = pending.get(part.correlationId) ?? begin(part);
    append.add(part.events);
    if (!part.isFinal) return;
    pending.delete(part.correlationId);
    const { options, events, bytes } = append;
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
      done: (outcome) => call.guard(() => answer(outcome)),
    });
    holdBack(call, committer);
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
      const { options, events, bytes } = pending;
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

/** Faster writers than the disk wait in their own process: memory here stays bounded. */
function holdBack(call: Call, committer: Committer): void {
  if (committer.queuedBytes < MAX_QUEUED_BYTES) return;
  call.pause();
  committer.drained().then(() => call.resume());
}
