import { MAX_CHUNK_BYTES, type OutputItem, type OutputReply, type Stream } from '@vmux/events';
import type { SeededRandom } from '@vmux/testing';
import type { FakeExec } from './fake-exec';

export interface Mischief {
  redelivered: number;
  ahead: number;
  reordered: number;
  foreign: number;
  refused: Record<string, number>;
}

/**
 * Sends an exec's output as the worst network would: frames twice, frames that leave bytes out, frames in
 * the wrong order, and frames of a sandbox that is not the session's. Goes on until everything is durable.
 */
export async function sendBadly(
  exec: FakeExec,
  output: Readonly<Partial<Record<Stream, Buffer>>>,
  random: SeededRandom,
): Promise<Mischief> {
  const done: Mischief = { redelivered: 0, ahead: 0, reordered: 0, foreign: 0, refused: {} };
  const streams = (Object.keys(output) as Stream[]).filter((stream) => output[stream]?.length);
  const acked: Partial<Record<Stream, number>> = {};
  const at = (stream: Stream) => acked[stream] ?? 0;
  const sizeOf = (stream: Stream) => output[stream]?.length ?? 0;

  const frameAt = (stream: Stream, offset: number): OutputItem[] => {
    const items: OutputItem[] = [];
    let from = offset;
    for (let left = 1 + random.integer(4); left > 0 && from < sizeOf(stream); left -= 1) {
      const to = Math.min(sizeOf(stream), from + 1 + random.integer(MAX_CHUNK_BYTES));
      const bytes = output[stream]?.subarray(from, to) ?? Buffer.alloc(0);
      items.push(exec.chunk(stream, from, bytes));
      from = to;
    }
    return items;
  };
  const take = (reply: OutputReply) => {
    const why = reply.ok ? reply.refused : 'refused' in reply ? reply.refused : null;
    if (why) done.refused[why.code] = (done.refused[why.code] ?? 0) + 1;
    if (!reply.ok) return;
    const next = reply.next[exec.id];
    if (!next) return;
    for (const stream of streams) acked[stream] = Math.max(at(stream), next[stream]);
  };
  const send = async (items: readonly OutputItem[]) => take(await exec.send(items));

  for (;;) {
    const open = streams.filter((stream) => at(stream) < sizeOf(stream));
    if (open.length === 0) break;
    const stream = random.pick(open);
    const frame = frameAt(stream, at(stream));
    const kind = random.integer(12);
    if (kind === 0) {
      done.redelivered += 1;
      await Promise.all([send(frame), send(frame)]);
    } else if (kind === 1) {
      done.ahead += 1;
      const skipped = Math.min(sizeOf(stream) - 1, at(stream) + 1 + random.integer(100_000));
      await send(frameAt(stream, skipped));
    } else if (kind === 2) {
      done.reordered += 1;
      const after = frame.reduce(
        (end, item) => end + (item.kind === 'chunk' ? item.bytes.length : 0),
        at(stream),
      );
      await Promise.all([
        ...(after < sizeOf(stream) ? [send(frameAt(stream, after))] : []),
        send(frame),
      ]);
    } else if (kind === 3) {
      done.foreign += 1;
      const lie = frame.map((item) =>
        item.kind === 'chunk' ? { ...item, bytes: Buffer.alloc(item.bytes.length, 0x21) } : item,
      );
      const stranger = { ...exec.sandbox, instance: 'somebody-else' };
      const reply = await exec.runner.output(stranger, lie);
      if (reply.ok) throw new Error('output of another instance was taken');
      take(reply);
    } else {
      await send(frame);
    }
  }
  for (const stream of streams) exec.written[stream] = sizeOf(stream);
  return done;
}
