// Follows one of the relay's JetStream streams without loss or repeat. Works with nats-server 2.9 and later.
import { setTimeout as sleep } from 'node:timers/promises';
import { AckPolicy, DeliverPolicy } from 'nats';

const BATCH = 256;
const EXPIRES_MS = 2_000;
const RETRY_MS = 500;
const FORGOTTEN_AFTER_NS = 60_000_000_000;

/**
 * Yields every message after the checkpoint, in order, for ever: `{ message, position, checkpoint }`.
 * Whoever handles a message stores its checkpoint together with what the message led to, and begins with
 * that one the next time.
 */
export async function* follow({ connection, stream, filter, checkpoint, onFault }) {
  let at = checkpoint;
  for (;;) {
    try {
      for await (const item of followOnce({ connection, stream, filter, at })) {
        at = item.checkpoint;
        yield item;
      }
    } catch (fault) {
      // NATS is away, or the stream was made anew: find the place again.
      if (connection.isClosed()) throw fault;
      onFault(fault);
    }
    await sleep(RETRY_MS);
  }
}

async function* followOnce({ connection, stream, filter, at }) {
  const manager = await connection.jetstreamManager({ checkAPI: false });
  const client = connection.jetstream();
  const { created: copy, state } = await manager.streams.info(stream);
  // Sequence numbers hold for one life of the stream; positions hold for ever.
  const known = at !== null && at.copy === copy && at.sequence <= state.last_seq;
  const { name } = await manager.consumers.add(stream, {
    ack_policy: AckPolicy.None,
    deliver_policy: DeliverPolicy.StartSequence,
    opt_start_seq: known ? at.sequence + 1 : 1,
    filter_subject: filter,
    inactive_threshold: FORGOTTEN_AFTER_NS,
    mem_storage: true,
  });
  const consumer = await client.consumers.get(stream, name);
  let last = at === null ? -1n : BigInt(at.position);
  for (let delivered = 0; ; ) {
    const before = delivered;
    // Ends by itself when it expires or when the server falls silent.
    const batch = await consumer.fetch({ max_messages: BATCH, expires: EXPIRES_MS });
    for await (const message of batch) {
      delivered += 1;
      if (message.info.deliverySequence !== delivered) throw new Error('a delivery was lost');
      const text = message.headers?.get('Vmux-Position');
      if (!text) continue; // not the relay's
      if (message.headers.get('Vmux-Copy') !== copy) throw new Error('the stream was made anew');
      const position = BigInt(text);
      if (position <= last) continue; // seen before the stream was made anew
      last = position;
      yield {
        message,
        position,
        checkpoint: { copy, sequence: message.seq, position: text },
      };
    }
    if (delivered === before && (await manager.streams.info(stream)).created !== copy)
      throw new Error('the stream was made anew');
  }
}
