import { Duplex } from 'node:stream';
import { AsyncQueue } from './async-queue';
import { ProtocolViolation, type SandboxError } from './errors';
import {
  type ExecState,
  type Figures,
  type OutputItem,
  readCredit,
  readData,
  readEmpty,
  readExec,
  readFigures,
  readOk,
  readOutput,
} from './supervisor-answers';
import type { SupervisorConnection } from './supervisor-connection';
import { outOfPlace, ReceiveWindow, SendWindow, WINDOW_BYTES } from './supervisor-requests';
import { asBuffer, BodyWriter, FRAME, MAX_DATA } from './wire';

type FrameOf = (id: number) => Buffer;

/** Runs the loop of a streaming request: what it yields comes from `queue`; leaving early abandons it. */
async function* drain<T>(
  connection: SupervisorConnection,
  id: number,
  queue: AsyncQueue<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T> {
  const abort = () => queue.fail(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    if (signal?.aborted) abort();
    for (let item = await queue.next(); item !== undefined; item = await queue.next()) {
      // What was queued before an abort is no longer wanted.
      signal?.throwIfAborted();
      yield item;
    }
  } finally {
    signal?.removeEventListener('abort', abort);
    connection.abandon(id);
  }
}

/** DATA frames of FILE_READ, TAR_OUT and the like, as bytes. */
export async function* readBytes(
  connection: SupervisorConnection,
  name: string,
  frameOf: FrameOf,
  signal?: AbortSignal,
  windowBytes = WINDOW_BYTES,
): AsyncGenerator<Buffer> {
  signal?.throwIfAborted();
  const queue = new AsyncQueue<Buffer>();
  const window = new ReceiveWindow(windowBytes);
  let received = 0;
  const id = connection.request(
    {
      onFrame: (frame) => {
        if (frame.type === FRAME.data) {
          const data = readData(frame);
          window.received(data.length);
          received += data.length;
          queue.push(data);
          return false;
        }
        if (frame.type !== FRAME.ok) throw outOfPlace(frame, name);
        if (readOk(frame) !== received) throw new ProtocolViolation(`${name}: bytes are missing`);
        queue.end();
        return true;
      },
      onFault: (fault) => queue.fail(fault),
    },
    frameOf,
  );
  for await (const data of drain(connection, id, queue, signal)) {
    yield data;
    window.taken(data.length, connection, id);
  }
}

export type ReadItem =
  | OutputItem
  | {
      readonly kind: 'end';
      readonly exec: ExecState;
      /** When it was asked for and the supervisor tells it so. */
      readonly usage: Figures | undefined;
    };

/** Below this size neighbouring pieces are joined while they wait. */
const JOINED_BYTES = 4096;

/** OUTPUT frames from an offset on; the last item says how the exec stands. */
export async function* readOutputFrom(
  connection: SupervisorConnection,
  execId: string,
  from: { readonly offset: number; readonly merged: boolean; readonly usage: boolean },
  frameOf: FrameOf,
  signal?: AbortSignal,
): AsyncGenerator<ReadItem> {
  signal?.throwIfAborted();
  const queue = new AsyncQueue<ReadItem>();
  const window = new ReceiveWindow();
  const order = new OutputOrder(from.offset, from.merged);
  let usage: Figures | undefined;
  const id = connection.request(
    {
      onFrame: (frame) => {
        if (frame.type === FRAME.output) {
          const item = readOutput(frame);
          if (item.kind !== 'resize') window.received(item.data.length);
          order.check(item);
          enqueue(queue, item);
          return false;
        }
        if (frame.type === FRAME.figuresAnswer && from.usage && !usage) {
          usage = readFigures(frame);
          return false;
        }
        if (frame.type !== FRAME.exec) throw outOfPlace(frame, 'READ');
        queue.push({ kind: 'end', exec: readExec(frame, execId), usage });
        queue.end();
        return true;
      },
      onFault: (fault) => queue.fail(fault),
    },
    frameOf,
  );
  for await (const item of drain(connection, id, queue, signal)) {
    yield item;
    if (item.kind === 'stdout' || item.kind === 'stderr')
      window.taken(item.data.length, connection, id);
  }
}

/** Joins small neighbours, so that a program that writes byte by byte costs no object per byte. */
function enqueue(queue: AsyncQueue<ReadItem>, item: OutputItem): void {
  const { last } = queue;
  if (item.kind === 'resize') {
    if (last?.kind === 'resize' && last.mergedOffset === item.mergedOffset) queue.replaceLast(item);
    else queue.push(item);
    return;
  }
  const small = JOINED_BYTES - item.data.length;
  if (last?.kind === item.kind && 'data' in last && last.data.length <= small)
    queue.replaceLast({ ...last, data: Buffer.concat([last.data, item.data]) });
  else queue.push(item);
}

/** Output is a byte sequence: each piece begins where the one before it ended. */
class OutputOrder {
  readonly #next: { stdout?: number; stderr?: number } = {};
  constructor(
    private offset: number,
    private readonly merged: boolean,
  ) {}

  check(item: OutputItem): void {
    if (this.merged !== (item.mergedOffset !== undefined))
      throw new ProtocolViolation('OUTPUT: of another numbering than asked for');
    if (this.merged && item.mergedOffset !== this.offset)
      throw new ProtocolViolation(`OUTPUT: offset ${item.mergedOffset}, not ${this.offset}`);
    if (item.kind === 'resize') return;
    const expected = this.merged ? this.#next[item.kind] : this.offset;
    if (expected !== undefined && item.streamOffset !== expected)
      throw new ProtocolViolation(`OUTPUT: ${item.kind} at ${item.streamOffset}, not ${expected}`);
    this.#next[item.kind] = item.streamOffset + item.data.length;
    this.offset += item.data.length;
  }
}

/** Sends bytes with FILE_WRITE or TAR_IN; resolves with the supervisor's count when all is done. */
export async function sendBytes(
  connection: SupervisorConnection,
  name: string,
  frameOf: FrameOf,
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<number> {
  signal?.throwIfAborted();
  const window = new SendWindow();
  let id = 0;
  const done = new Promise<number>((resolve, reject) => {
    id = connection.request(
      {
        onFrame: (frame) => {
          if (frame.type === FRAME.accepted || frame.type === FRAME.credit) {
            window.grant(readCredit(frame));
            return false;
          }
          if (frame.type !== FRAME.ok) throw outOfPlace(frame, name);
          resolve(readOk(frame));
          window.close();
          return true;
        },
        onFault: (fault) => {
          window.fail(fault);
          reject(fault);
        },
      },
      frameOf,
    );
  });
  done.catch(() => undefined);
  try {
    for await (const chunk of source) await sendChunk(connection, id, window, chunk, signal);
    signal?.throwIfAborted();
    connection.send(new BodyWriter().frame(FRAME.end, id));
    return await untilAborted(done, signal);
  } finally {
    connection.abandon(id);
  }
}

export async function sendChunk(
  connection: SupervisorConnection,
  id: number,
  window: SendWindow,
  chunk: Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  let rest = asBuffer(chunk);
  while (rest.length > 0) {
    const size = await untilAborted(window.take(Math.min(rest.length, MAX_DATA)), signal);
    if (size === 0) return;
    await connection.writable();
    connection.send(new BodyWriter().bytes(rest.subarray(0, size)).frame(FRAME.data, id));
    rest = rest.subarray(size);
  }
}

function untilAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** A byte tunnel to a port inside. */
export function dialPort(
  connection: SupervisorConnection,
  port: number,
  signal?: AbortSignal,
): Promise<Duplex> {
  return new Promise<Duplex>((resolve, reject) => {
    signal?.throwIfAborted();
    const tunnel = new PortTunnel(connection, (fault) => reject(fault ?? signal?.reason));
    tunnel.start(port, () => {
      signal?.removeEventListener('abort', abort);
      resolve(tunnel);
    });
    const abort = () => {
      tunnel.destroy();
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', abort, { once: true });
  });
}

class PortTunnel extends Duplex {
  readonly #receive = new ReceiveWindow();
  readonly #send = new SendWindow();
  #id = 0;
  #accepted = false;
  #ended = false;
  /** Bytes pushed and not seen to be taken. */
  #held = 0;

  constructor(
    readonly connection: SupervisorConnection,
    readonly refused: (fault: SandboxError | undefined) => void,
  ) {
    super({ allowHalfOpen: true });
  }

  start(port: number, accepted: () => void): void {
    this.#id = this.connection.request(
      {
        onFrame: (frame) => {
          switch (frame.type) {
            case FRAME.accepted:
              if (this.#accepted) throw outOfPlace(frame, 'DIAL');
              this.#accepted = true;
              this.#send.grant(readCredit(frame));
              accepted();
              return false;
            case FRAME.credit:
              this.#send.grant(readCredit(frame));
              return false;
            case FRAME.data: {
              if (this.#ended) throw outOfPlace(frame, 'DIAL');
              const data = readData(frame);
              this.#receive.received(data.length);
              this.push(data);
              return false;
            }
            case FRAME.end:
              readEmpty(frame, 'END');
              if (this.#ended) throw outOfPlace(frame, 'DIAL');
              this.#ended = true;
              this.push(null);
              return false;
            case FRAME.ok:
              readOk(frame);
              this.#send.close();
              return true;
            default:
              throw outOfPlace(frame, 'DIAL');
          }
        },
        onFault: (fault) => {
          this.#send.fail(fault);
          if (this.#accepted) this.destroy(fault);
          else this.refused(fault);
        },
      },
      (id) => new BodyWriter().u16(port).u32(WINDOW_BYTES).frame(FRAME.dial, id),
    );
  }

  // Granted again only what the reader took. Node calls `_read` before it takes, hence the later look.
  override _read(): void {
    process.nextTick(() => {
      const taken = this.#held - this.readableLength;
      this.#held -= taken;
      if (taken > 0) this.#receive.taken(taken, this.connection, this.#id);
    });
  }

  override push(chunk: Buffer | null): boolean {
    if (chunk) this.#held += chunk.length;
    return super.push(chunk);
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    sendChunk(this.connection, this.#id, this.#send, chunk).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.connection.send(new BodyWriter().frame(FRAME.end, this.#id));
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.connection.abandon(this.#id);
    this.#send.close();
    done(error);
  }
}
