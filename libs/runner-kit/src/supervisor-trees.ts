import { AsyncQueue } from './async-queue';
import { ProtocolViolation, SupervisorRefused } from './errors';
import { ScanReader } from './scan-reader';
import { readCredit, readData, readOk } from './supervisor-answers';
import type { SupervisorConnection } from './supervisor-connection';
import type { Bytes } from './supervisor-files';
import { ask, outOfPlace, ReceiveWindow, SendWindow } from './supervisor-requests';
import { readBytes, sendBytes, sendChunk } from './supervisor-streams';
import {
  ByteFeed,
  type ReadFileItem,
  readFileItem,
  type ScannedEntry,
} from './supervisor-tree-answers';
import { BodyWriter, FRAME } from './wire';

interface Call {
  readonly signal?: AbortSignal;
}

/** A sandbox that stands still. */
export interface Frozen {
  /** Lets it go on, unless somebody else holds it. */
  release(): void;
  /** Throws when it has gone on by itself: what was read meanwhile may be torn. */
  check(): void;
}

export interface Scan {
  /** By the sandbox's own clock. */
  readonly scannedAtNs: bigint;
  /** What has changed after this time counts as the workload's. */
  readonly sinceNs: bigint;
  /** Some at a time. */
  readonly entries: AsyncGenerator<readonly ScannedEntry[]>;
}

/** Much of a checkpoint is read at once: a larger window than a terminal's. */
const TREE_WINDOW = 4 * 1024 * 1024;
const STILL_HERE_MS = 1_000;

/** All of a sandbox's files at once: what checkpoints are made of, docs/checkpoints.md. */
export class SupervisorTrees {
  constructor(private readonly connection: SupervisorConnection) {}

  /** Whether this supervisor is new enough. */
  get known(): boolean {
    return this.connection.hello.checkpoints;
  }

  /** Stops every process of the sandbox until it is released; also when this pipe breaks. */
  freeze({ signal }: Call = {}): Promise<Frozen> {
    this.#needKnown();
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      let broken: Error | undefined;
      let done = false;
      const settle = () => signal?.removeEventListener('abort', abort);
      let saying: NodeJS.Timeout | undefined;
      const frozen: Frozen = {
        release: () => {
          clearInterval(saying);
          this.connection.abandon(id);
        },
        check: () => {
          if (broken) throw broken;
        },
      };
      const id = this.connection.request(
        {
          onFrame: (frame) => {
            if (frame.type !== FRAME.ok || done) throw outOfPlace(frame, 'FREEZE');
            readOk(frame);
            done = true;
            settle();
            saying = setInterval(() => this.#sayWeAreHere(), STILL_HERE_MS);
            resolve(frozen);
            return false;
          },
          onFault: (fault) => {
            broken = fault;
            clearInterval(saying);
            settle();
            reject(fault);
          },
        },
        (number) => new BodyWriter().u8(0).frame(FRAME.freeze, number),
      );
      const abort = () => {
        this.connection.abandon(id);
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  /** A pipe may outlive us; the supervisor ends what it hears nothing of. */
  #sayWeAreHere(): void {
    const frameOf = (id: number) => new BodyWriter().bytes('').frame(FRAME.ping, id);
    // A broken pipe is told to whoever holds it.
    ask(this.connection, 'PING', frameOf, { [FRAME.pong]: () => undefined }).catch(() => undefined);
  }

  /** Stops every process until `thaw`, whatever becomes of this pipe. */
  async hold({ signal }: Call = {}): Promise<void> {
    this.#needKnown();
    const frameOf = (id: number) => new BodyWriter().u8(1).frame(FRAME.freeze, id);
    await ask(this.connection, 'FREEZE', frameOf, { [FRAME.ok]: readOk }, signal);
  }

  /** Lets everything go on. Without anything that stands still it changes nothing. */
  async thaw({ signal }: Call = {}): Promise<void> {
    if (!this.known) return;
    const frameOf = (id: number) => new BodyWriter().frame(FRAME.thaw, id);
    await ask(this.connection, 'THAW', frameOf, { [FRAME.ok]: readOk }, signal);
  }

  /** What the workload has changed since the sandbox began, in the order of paths. */
  async scan(exclude: readonly string[], { signal }: Call = {}): Promise<Scan> {
    this.#needKnown();
    const body = new BodyWriter().u64(0).u16(exclude.length);
    for (const path of exclude) body.bytes(path);
    body.u32(TREE_WINDOW);
    const frameOf = (id: number) => body.frame(FRAME.scan, id);
    const bytes = readBytes(this.connection, 'SCAN', frameOf, signal, TREE_WINDOW);
    const feed = new ByteFeed(bytes, 'SCAN');
    const head = await feed.take(17);
    const [scannedAtNs, sinceNs] = [head.readBigUInt64LE(0), head.readBigUInt64LE(8)];
    return { scannedAtNs, sinceNs, entries: entriesOf(feed) };
  }

  /** The bytes of files, by path, one after the other, in the order given. */
  async *readMany(paths: readonly string[], { signal }: Call = {}): AsyncGenerator<ReadFileItem> {
    this.#needKnown();
    const encoded = function* (): Generator<Buffer> {
      for (const path of paths) {
        const raw = Buffer.from(path, 'latin1');
        const length = Buffer.alloc(4);
        length.writeUInt32LE(raw.length);
        yield Buffer.concat([length, raw]);
      }
    };
    const frameOf = (id: number) => new BodyWriter().u32(TREE_WINDOW).frame(FRAME.readMany, id);
    const bytes = exchangeBytes(this.connection, frameOf, inBatches(encoded()), signal);
    const feed = new ByteFeed(bytes, 'READ_MANY');
    try {
      for (let ended = 0; ended < paths.length; ) {
        const item = await readFileItem(feed);
        if (item.kind === 'end' || item.kind === 'failed') ended += 1;
        yield item;
      }
      await feed.end();
    } finally {
      await feed.close();
    }
  }

  /** Puts files back; resolves with the number of entries. The format is docs/supervisor-protocol.md. */
  unpack(stream: Bytes, { signal }: Call = {}): Promise<number> {
    this.#needKnown();
    const frameOf = (id: number) => new BodyWriter().frame(FRAME.unpack, id);
    return sendBytes(this.connection, 'UNPACK', frameOf, stream, signal);
  }

  #needKnown(): void {
    if (this.known) return;
    const detail = 'its supervisor is older than checkpoints: start the session anew';
    throw new SupervisorRefused('invalid', detail, 0, 0);
  }
}

async function* entriesOf(feed: ByteFeed): AsyncGenerator<readonly ScannedEntry[]> {
  const reader = new ScanReader();
  try {
    for await (const bytes of feed.rest()) yield reader.push(bytes);
    yield reader.finish();
  } finally {
    await feed.close();
  }
}

function* inBatches(pieces: Iterable<Buffer>): Generator<Buffer> {
  let held: Buffer[] = [];
  let size = 0;
  for (const piece of pieces) {
    held.push(piece);
    size += piece.length;
    if (size < 32_768) continue;
    yield Buffer.concat(held);
    held = [];
    size = 0;
  }
  yield Buffer.concat(held);
}

/** Bytes in, bytes out, at the same time. */
async function* exchangeBytes(
  connection: SupervisorConnection,
  frameOf: (id: number) => Buffer,
  source: Iterable<Buffer>,
  signal?: AbortSignal,
): AsyncGenerator<Buffer> {
  signal?.throwIfAborted();
  const queue = new AsyncQueue<Buffer>();
  const receive = new ReceiveWindow(TREE_WINDOW);
  const send = new SendWindow();
  let received = 0;
  const id = connection.request(
    {
      onFrame: (frame) => {
        switch (frame.type) {
          case FRAME.accepted:
          case FRAME.credit:
            send.grant(readCredit(frame));
            return false;
          case FRAME.data: {
            const data = readData(frame);
            receive.received(data.length);
            received += data.length;
            queue.push(data);
            return false;
          }
          case FRAME.ok:
            if (readOk(frame) !== received)
              throw new ProtocolViolation('READ_MANY: bytes are missing');
            send.close();
            queue.end();
            return true;
          default:
            throw outOfPlace(frame, 'READ_MANY');
        }
      },
      onFault: (fault) => {
        send.fail(fault);
        queue.fail(fault);
      },
    },
    frameOf,
  );
  const abort = () => queue.fail(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  const sending = (async () => {
    for (const piece of source) await sendChunk(connection, id, send, piece, signal);
    connection.send(new BodyWriter().frame(FRAME.end, id));
  })();
  sending.catch((error) => queue.fail(error));
  try {
    for (let item = await queue.next(); item !== undefined; item = await queue.next()) {
      signal?.throwIfAborted();
      yield item;
      receive.taken(item.length, connection, id);
    }
  } finally {
    signal?.removeEventListener('abort', abort);
    send.close();
    connection.abandon(id);
  }
}
