import type { Readable } from 'node:stream';
import type { OpenedStream } from '@vmux/tunnel';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import type { Caller } from '../application/key-ring';
import { ApiError } from '../http/api-error';
import type { Followers } from '../http/followers';
import { Outgoing } from '../http/outgoing';

/** Bytes between an HTTP client and a sandbox, as fast as the slower of the two. */
export class Transfers {
  constructor(
    private readonly followers: Followers,
    private readonly logger: Logger,
  ) {}

  /** Runs the work with a signal that aborts when the client goes, its key is revoked or this process ends. */
  async during<T>(
    caller: Caller,
    reply: FastifyReply,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const held = this.followers.enter(caller);
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    try {
      return await work(AbortSignal.any([held.signal, gone.signal]));
    } finally {
      held.leave();
    }
  }

  /** Sends the body of the request, to its end; a body that is cut off is no end. */
  async upload(request: FastifyRequest, stream: OpenedStream): Promise<unknown> {
    try {
      for await (const piece of untilFailed(piecesOf(request), stream)) await stream.send(piece);
    } catch (fault) {
      stream.cancel();
      throw fault;
    }
    stream.end();
    return stream.result;
  }

  /** Nothing is sent before the first byte has come: a refusal until then is answered as any other. */
  async download(
    reply: FastifyReply,
    stream: OpenedStream,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    around: { before?: string; between?: (piece: Buffer) => Uint8Array; after?: string } = {},
  ): Promise<void> {
    const pieces = stream.receive();
    let step = await pieces.next();
    if (step.done) await stream.result;
    const out = new Outgoing(reply, headers, signal);
    out.begin();
    try {
      if (around.before) await out.write(around.before);
      for (; !step.done && !out.signal.aborted; step = await pieces.next())
        await out.write(around.between ? around.between(step.value) : step.value);
      out.signal.throwIfAborted();
      await stream.result;
      if (around.after) await out.write(around.after);
      out.end();
    } catch (fault) {
      if (!out.signal.aborted) this.logger.warn({ err: fault }, 'a download was cut');
      stream.cancel();
      out.cut();
    }
  }
}

/** A client that sends nothing more hears at once that the other end is gone. */
async function* untilFailed(
  pieces: AsyncIterable<Uint8Array> | readonly Uint8Array[],
  stream: OpenedStream,
): AsyncGenerator<Uint8Array> {
  const failed = new AbortController();
  let interrupt: () => void = () => undefined;
  stream.result.catch((fault) => {
    failed.abort(fault);
    interrupt();
  });
  const iterator =
    Symbol.asyncIterator in pieces ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  for (;;) {
    const step = await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
      failed.signal.throwIfAborted();
      interrupt = () => reject(failed.signal.reason);
      Promise.resolve(iterator.next()).then(resolve, reject);
    });
    if (step.done) return;
    yield step.value;
  }
}

function piecesOf(request: FastifyRequest): AsyncIterable<Uint8Array> | readonly Uint8Array[] {
  const body = request.body as Readable | undefined | null;
  if (body === undefined || body === null) return [];
  if (typeof body.iterator !== 'function')
    throw new ApiError('unsupported_media_type', 'this endpoint takes application/octet-stream');
  // What is left of a body that is refused is read off after the answer, so that the answer arrives.
  return body.iterator({ destroyOnReturn: false });
}
