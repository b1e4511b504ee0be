import { decodeAppendOptions } from '../protocol/append-messages';
import { deleteResponse } from '../protocol/append-responses';
import type { ExpectedRevision } from '../protocol/proposed-event';
import { CallError, Status, wrongExpectedVersion } from '../protocol/status';
import { Reader } from '../protocol/wire';
import type { Committer } from '../storage/committer';
import type { Call } from '../transport/call';
import { decoded, refusal } from './append';

/** How the trailers of Delete and Tombstone spell an expectation. */
const spelled = (expected: ExpectedRevision): string =>
  typeof expected === 'number'
    ? String(expected)
    : { no_stream: '-1', any: '-2', stream_exists: '-4' }[expected];

/** Delete (`delete`: the name can be used again) and Tombstone (`tombstone`: never again). */
export function deleteStream(call: Call, committer: Committer, kind: 'delete' | 'tombstone'): void {
  let request: Buffer | undefined;
  call.serve({
    message: (message) => {
      request = message;
    },
    end: () => {
      if (!request) throw new CallError(Status.INVALID_ARGUMENT, 'no request');
      const { stream, expected } = decoded(() => decodeAppendOptions(optionsIn(request)));
      committer.submit({
        request: { kind, stream, expected },
        bytes: 0,
        deadlineMs: call.deadlineMs,
        done: (outcome) =>
          call.guard(() => {
            if (outcome.kind === 'wrong_revision') {
              throw wrongExpectedVersion(stream, spelled(expected), outcome.actual);
            }
            if (outcome.kind !== 'written') throw refusal(stream, outcome);
            call.send(deleteResponse(outcome.position));
            call.finish(Status.OK);
          }),
      });
    },
  });
}

function optionsIn(request: Buffer | undefined): Buffer {
  const reader = new Reader(request ?? Buffer.alloc(0));
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) return reader.bytes();
    reader.skip();
  }
  throw new CallError(Status.INVALID_ARGUMENT, 'no options');
}
