import type { SeededRandom } from '@vmux/testing';
import { ApiClient } from '../support/api-client';
import type { PatientClient } from './client';
import { inputOf, type Operation, READY, streamOf } from './operations';

export interface Follower {
  readonly operation: Operation;
  /** Bytes from an offset, or events after the last one's id. */
  readonly by: 'offset' | 'event id';
  bytes: Buffer;
  finished: boolean;
  drops: number;
  /** What the last read that did not finish was answered. */
  lastAnswer: string;
  /** What an attached terminal showed to its end. */
  shown: Buffer | null;
  /** What no follower may be told. */
  fault: string | null;
}

export const newFollower = (operation: Operation, by: Follower['by']): Follower => ({
  ...{ operation, by, bytes: Buffer.alloc(0), finished: false, drops: 0 },
  ...{ lastAnswer: '', shown: null, fault: null },
});

/** A connection on which nothing comes for so long is given up. */
export const SILENCE_MS = 8_000;
const MAX_DROP_BYTES = 200_000;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

const logsOf = ({ operation }: Follower): string => {
  const { session, execId } = operation;
  return `/v1/sessions/${session}/logs?exec=${execId}&stream=${streamOf(operation)}&follow=true`;
};

/** Reads to the end of the exec, dropping the connection at random and going on where it was. */
export async function follow(
  client: PatientClient,
  random: SeededRandom,
  follower: Follower,
): Promise<void> {
  const read = follower.by === 'offset' ? readBytes : eventReader();
  while (!follower.finished) {
    const isDropped = random.integer(3) === 0;
    await read(client, follower, isDropped ? 1 + random.integer(MAX_DROP_BYTES) : Infinity);
    if (follower.finished) return;
    follower.drops += 1;
    await pause(50);
  }
}

type Read = (client: PatientClient, follower: Follower, most: number) => Promise<void>;

const readBytes: Read = async (client, follower, most) => {
  const path = `${logsOf(follower)}&offset=${follower.bytes.length}`;
  const { bytes, complete, status } = await client.read(path, most);
  follower.lastAnswer = status === 200 ? '200' : `${status} ${bytes.toString().slice(0, 200)}`;
  if (status === 200) follower.bytes = Buffer.concat([follower.bytes, bytes]);
  follower.finished = complete;
};

function eventReader(): Read {
  let lastId: string | null = null;
  return async (client, follower, most) => {
    const leave = new AbortController();
    const silence = setTimeout(() => leave.abort(new Error('silence')), SILENCE_MS);
    const headers: Record<string, string> = lastId === null ? {} : { 'last-event-id': lastId };
    const from = follower.bytes.length;
    client.requests += 1;
    try {
      const api = new ApiClient(client.anyGateway(), client.key);
      const events = api.events(logsOf(follower), { headers, signal: leave.signal });
      for await (const { event, id, data } of events) {
        silence.refresh();
        follower.lastAnswer = event;
        if (event === 'end') follower.finished = true;
        if (event === 'gap') follower.fault ??= `a gap from ${data.from} to ${data.to}`;
        if (event !== 'message') continue;
        const { length } = follower.bytes;
        if (data.offset !== length) follower.fault ??= `after ${length} comes ${data.offset}`;
        follower.bytes = Buffer.concat([follower.bytes, Buffer.from(data.b64, 'base64')]);
        lastId = id;
        if (follower.bytes.length - from >= most) break;
      }
    } catch (fault) {
      follower.lastAnswer = String(fault);
    } finally {
      clearTimeout(silence);
    }
  };
}

/** Until so much can be read of it, or it has ended. */
export async function shown(client: PatientClient, follower: Follower, size: number) {
  for (;;) {
    const { bytes, complete, status } = await client.read(logsOf(follower), size);
    if (complete || (status === 200 && bytes.length >= size)) return;
    await pause(50);
  }
}

const PIECE_BYTES = 5_000;
let writers = 0;

/** Gives an exec its input, piece by piece; a piece whose answer was lost is sent again as it was. */
export async function feed(client: PatientClient, follower: Follower): Promise<void> {
  const { session, execId, kind, seed } = follower.operation;
  const input = inputOf(seed);
  const writer = Date.now() * 1000 + (writers++ % 1000);
  const path = `/v1/sessions/${session}/execs/${execId}/stdin?writer=${writer}`;
  if (kind === 'typed') await shown(client, follower, READY.length);
  for (let offset = 0; offset < input.length && !follower.finished; ) {
    const piece = input.subarray(offset, offset + PIECE_BYTES);
    const answer = await client.write(`${path}&offset=${offset}`, piece, () => follower.finished);
    // It has ended, or the sandbox is gone: its outcome says so.
    if (answer?.status !== 200) return;
    offset += piece.length;
  }
  if (kind === 'reader' && !follower.finished)
    await client.write(
      `${path}&offset=${input.length}&eof=true`,
      Buffer.alloc(0),
      () => follower.finished,
    );
}
