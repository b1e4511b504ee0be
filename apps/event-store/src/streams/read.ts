import { decodeReadReq, type ReadRequest } from '../protocol/read-request';
import { streamNotFound } from '../protocol/read-responses';
import { withStructuredId } from '../protocol/recorded-event';
import { CallError, Status, streamDeleted } from '../protocol/status';
import type { EventReader } from '../storage/reader';
import type { Call } from '../transport/call';
import { decoded } from './append';
import { type Feed, feedOf } from './feeds';
import type { Subscriptions } from './subscriptions';

/** Streams/Read: everything that is read or subscribed to. */
export function read(call: Call, reader: EventReader, subscriptions: Subscriptions): void {
  let request: Buffer | undefined;
  call.serve({
    message: (message) => {
      request = message;
    },
    end: () => {
      const message = request;
      if (!message) throw new CallError(Status.INVALID_ARGUMENT, 'no request');
      const options = decoded(() => decodeReadReq(message));
      const feed = encodedAsAsked(
        options,
        decoded(() => feedOf(options, reader)),
      );
      if (options.limit === undefined) subscriptions.open(call, options.stream, feed);
      else readOnce(call, reader, options, options.limit, feed);
    },
    closed: () => subscriptions.closed(call),
  });
}

function readOnce(
  call: Call,
  reader: EventReader,
  { stream }: ReadRequest,
  limit: number,
  feed: Feed,
): void {
  if (stream !== undefined) {
    const found = reader.findStream(stream);
    if (found?.tombstoned) throw streamDeleted(stream);
    if (!found?.exists) {
      call.send(streamNotFound(stream));
      call.finish(Status.OK);
      return;
    }
  }
  sendAll(call, feed, limit).catch((error) => call.fail(error));
}

async function sendAll(call: Call, feed: Feed, limit: number): Promise<void> {
  let rest = limit;
  while (rest > 0 && !call.isOver) {
    const { frames, atEnd } = feed.next(rest);
    if (atEnd) break;
    rest -= frames.length;
    if (frames.length > 0 && !call.sendNow(Buffer.concat(frames))) await call.writable();
    // Others get their turn between two batches.
    else await new Promise(setImmediate);
  }
  call.finish(Status.OK);
}

function encodedAsAsked({ structuredIds }: ReadRequest, feed: Feed): Feed {
  if (!structuredIds) return feed;
  return {
    next: (limit) => {
      const { frames, atEnd } = feed.next(limit);
      return { frames: frames.map(withStructuredId), atEnd };
    },
    live: (events) => feed.live(events).map(withStructuredId),
    onCaughtUp: () => feed.onCaughtUp(),
  };
}
