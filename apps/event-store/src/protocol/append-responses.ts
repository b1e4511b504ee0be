import type { Outcome } from '../storage/committer';
import type { AppendOptions } from './append-messages';
import type { ExpectedRevision } from './proposed-event';
import { FRAME_HEADER_BYTES, frameOf } from './recorded-event';
import { MAX_APPEND_BYTES, NO_SPACE, Status } from './status';
import { bytesFieldSize, message, varintSize, Writer } from './wire';

export type AppendOutcome =
  | Outcome
  | { readonly kind: 'too_large' }
  | { readonly kind: 'invalid'; readonly reason: string };

const EMPTY = Buffer.alloc(0);

/** One response of BatchAppend, framed. The common success is sized and written in one go. */
export function batchAppendResponse(
  correlationId: string,
  options: AppendOptions,
  outcome: AppendOutcome,
): Buffer {
  if (outcome.kind !== 'written') {
    return batchFrame(correlationId, options.stream, [2, rpcStatus(options, outcome)]);
  }
  const { revision, position } = outcome;
  if (revision !== undefined && position !== undefined) {
    return successFrame(correlationId, options.stream, revision, position);
  }
  const noRevision = revision === undefined ? EMPTY : undefined;
  const success = message([1, revision], [2, noRevision], [4, EMPTY]);
  return batchFrame(correlationId, options.stream, [3, success]);
}

const batchFrame = (id: string, stream: string, result: [field: number, value: Buffer]): Buffer =>
  frameOf(message([1, message([2, id])], result, [4, message([3, stream])]));

function successFrame(id: string, stream: string, revision: number, position: number): Buffer {
  const name = Buffer.from(stream, 'utf8');
  const idSize = bytesFieldSize(id.length);
  const positionSize = 2 * (1 + varintSize(position));
  const successSize = 1 + varintSize(revision) + bytesFieldSize(positionSize);
  const nameSize = bytesFieldSize(name.length);
  const size = bytesFieldSize(idSize) + bytesFieldSize(successSize) + bytesFieldSize(nameSize);
  return new Writer(Buffer.allocUnsafe(FRAME_HEADER_BYTES + size))
    .byte(0)
    .uint32BigEndian(size)
    .open(1, idSize)
    .latinField(2, id)
    .open(3, successSize)
    .varintField(1, revision)
    .open(3, positionSize)
    .varintField(1, position)
    .varintField(2, position)
    .open(4, nameSize)
    .bytesField(3, name)
    .finish();
}

/**
 * A `google.rpc.Status`. The client reads its packed detail and cannot do without one; for a detail it
 * does not know, it shows the message.
 */
function rpcStatus(
  { stream, expected }: AppendOptions,
  outcome: Exclude<AppendOutcome, { kind: 'written' }>,
): Buffer {
  switch (outcome.kind) {
    case 'wrong_revision': {
      const detail = message(
        [1, outcome.actual === 'no_stream' ? undefined : outcome.actual],
        [2, outcome.actual === 'no_stream' ? EMPTY : undefined],
        ...expectation(expected, { revision: 3, any: 4, stream_exists: 5, no_stream: 6 }),
      );
      return packed(Status.FAILED_PRECONDITION, 'wrong revision', 'WrongExpectedVersion', detail);
    }
    case 'stream_deleted': {
      const detail = message([1, message([3, stream])]);
      return packed(Status.FAILED_PRECONDITION, 'stream deleted', 'StreamDeleted', detail);
    }
    case 'deadline_exceeded':
      return packed(Status.DEADLINE_EXCEEDED, 'deadline exceeded', 'Timeout', EMPTY);
    case 'too_large': {
      const text = `an append may carry ${MAX_APPEND_BYTES} bytes`;
      const detail = message([1, MAX_APPEND_BYTES]);
      return packed(Status.INVALID_ARGUMENT, text, 'MaximumAppendSizeExceeded', detail);
    }
    case 'no_space':
      return packed(Status.RESOURCE_EXHAUSTED, NO_SPACE, 'BadRequest', message([1, NO_SPACE]));
    case 'invalid':
    case 'failed': {
      const { kind, reason } = outcome;
      const code = kind === 'invalid' ? Status.INVALID_ARGUMENT : Status.INTERNAL;
      return packed(code, reason, 'BadRequest', message([1, reason]));
    }
  }
}

function packed(code: number, text: string, type: string, detail: Buffer): Buffer {
  const any = message([1, `type.googleapis.com/event_store.client.${type}`], [2, detail]);
  return message([1, code], [2, text], [3, any]);
}

/** Each kind of expectation is a field of its own, and which one differs by message. */
function expectation(
  expected: ExpectedRevision,
  fields: Record<'revision' | 'any' | 'no_stream' | 'stream_exists', number>,
): [field: number, value: number | Buffer][] {
  return [typeof expected === 'number' ? [fields.revision, expected] : [fields[expected], EMPTY]];
}

/** The response of unary Append, framed; other outcomes end the call with a status. */
export function appendResponse(
  expected: ExpectedRevision,
  outcome: Extract<Outcome, { kind: 'written' | 'wrong_revision' }>,
): Buffer {
  if (outcome.kind === 'written') {
    const { revision, position } = outcome;
    const success = message(
      [1, revision],
      [2, revision === undefined ? EMPTY : undefined],
      ...positionFields(position, { some: 3, none: 4 }),
    );
    return frameOf(message([1, success]));
  }
  const wrong = message(
    [6, outcome.actual === 'no_stream' ? undefined : outcome.actual],
    [7, outcome.actual === 'no_stream' ? EMPTY : undefined],
    ...expectation(expected, { revision: 8, any: 9, stream_exists: 10, no_stream: 11 }),
  );
  return frameOf(message([2, wrong]));
}

/** The responses of Delete and Tombstone have the same fields. */
export const deleteResponse = (position: number | undefined): Buffer =>
  frameOf(message(...positionFields(position, { some: 1, none: 2 })));

function positionFields(
  position: number | undefined,
  fields: Record<'some' | 'none', number>,
): [field: number, value: Buffer][] {
  if (position === undefined) return [[fields.none, EMPTY]];
  return [[fields.some, message([1, position], [2, position])]];
}
