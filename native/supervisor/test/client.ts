// As much of a client as these tests need; it speaks docs/supervisor-protocol.md and checks nothing more.
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { Body, Bytes } from './bytes';

export const T = {
  HELLO: 0x01,
  ERROR: 0x02,
  OK: 0x03,
  PING: 0x04,
  PONG: 0x05,
  CREDIT: 0x06,
  DATA: 0x07,
  END: 0x08,
  CLOSE: 0x09,
  CLOSED: 0x0a,
  ACCEPTED: 0x0b,
  START: 0x10,
  CANCEL: 0x11,
  SIGNAL: 0x12,
  STATE: 0x13,
  WATCH: 0x14,
  READ: 0x15,
  ACK: 0x16,
  RELEASE: 0x17,
  STDIN: 0x18,
  RESIZE: 0x19,
  PORTS: 0x20,
  DIAL: 0x21,
  FILE_STAT: 0x30,
  FILE_LIST: 0x31,
  FILE_READ: 0x32,
  FILE_WRITE: 0x33,
  FILE_REMOVE: 0x34,
  FILE_MKDIR: 0x35,
  TAR_OUT: 0x36,
  TAR_IN: 0x37,
  FIGURES: 0x38,
  STOP: 0x39,
  QUIT: 0x3a,
  FREEZE: 0x3b,
  THAW: 0x3c,
  SCAN: 0x3d,
  READ_MANY: 0x3e,
  UNPACK: 0x3f,
  EXEC: 0x50,
  OUTPUT: 0x51,
  STDIN_ACK: 0x52,
  STDIN_READY: 0x53,
  PORT: 0x54,
  FIGURES_ARE: 0x55,
} as const;

export const E = {
  MALFORMED: 1,
  VERSION: 2,
  MISMATCH: 3,
  LIMIT: 4,
  NOT_FOUND: 5,
  ENDED: 6,
  GONE: 7,
  RANGE: 8,
  STALE_WRITER: 9,
  GAP: 10,
  SYSTEM: 11,
  READ_ONLY: 12,
  STOPPING: 13,
  NO_STDIN: 14,
  NO_TERMINAL: 15,
  RUNNING: 16,
  INVALID: 17,
  UNSAFE: 18,
} as const;

export const state = {
  starting: 1,
  running: 2,
  exited: 3,
  signaled: 4,
  failed: 5,
  cancelled: 6,
  lost: 7,
} as const;

export type Frame = { type: number; id: number; body: Bytes };
export type Exec = ReturnType<typeof execOf>;
export type Output = {
  kind: number;
  mergedOffset: bigint;
  streamOffset: bigint;
  timeUs: bigint;
  data: Buffer;
};

export class Refused extends Error {
  constructor(
    readonly code: number,
    readonly errno: number,
    readonly detail: bigint,
    text: string,
  ) {
    super(`${code}: ${text}`);
  }
}

export function errorOf(body: Bytes): Refused {
  const [code, , errno, detail] = [body.u16(), body.u16(), body.u32(), body.u64()];
  return new Refused(code, errno, detail, body.bytes().toString());
}

export function execOf(body: Bytes) {
  const [stateOf, flags, stage] = [body.u8(), body.u8(), body.u8(), body.u8()];
  return {
    state: stateOf,
    flags,
    stage,
    code: body.i32(),
    seq: body.u32(),
    pid: body.u32(),
    startedUs: body.u64(),
    endedUs: body.u64(),
    stdoutSize: Number(body.u64()),
    stderrSize: Number(body.u64()),
    ackedOffset: Number(body.u64()),
    lateBytes: Number(body.u64()),
    execId: body.bytes().toString(),
  };
}

export function outputOf(body: Bytes): Output {
  return {
    kind: body.u8(),
    mergedOffset: body.u64(),
    streamOffset: body.u64(),
    timeUs: body.u64(),
    data: Buffer.from(body.bytes()),
  };
}

/** One open request: its frames in order. */
export class Exchange {
  private readonly frames: Frame[] = [];
  private waiter?: { resolve: (frame: Frame) => void; reject: (error: Error) => void };
  private broken?: Error;

  constructor(
    readonly id: number,
    readonly connection: Connection,
  ) {}

  /** The next frame; an ERROR is thrown. */
  async next(): Promise<Frame> {
    const frame =
      this.frames.shift() ??
      (await new Promise<Frame>((resolve, reject) => {
        if (this.broken) reject(this.broken);
        else this.waiter = { resolve, reject };
      }));
    if (frame.type === T.ERROR) throw errorOf(frame.body);
    return frame;
  }

  async expect(type: number): Promise<Bytes> {
    const frame = await this.next();
    if (frame.type !== type) throw new Error(`frame ${frame.type} came, not ${type}`);
    return frame.body;
  }

  send(type: number, body = new Body()): void {
    this.connection.send(type, this.id, body);
  }

  push(frame: Frame): void {
    const waiter = this.waiter;
    this.waiter = undefined;
    if (waiter) waiter.resolve(frame);
    else this.frames.push(frame);
  }

  fail(error: Error): void {
    this.broken = error;
    this.waiter?.reject(error);
    this.waiter = undefined;
  }
}

export class Connection {
  private pending: Buffer = Buffer.alloc(0);
  private lastId = 0;
  private readonly exchanges = new Map<number, Exchange>();
  readonly closed: Promise<void>;
  hello?: { version: number; flags: number; epoch: bigint; startedUs: bigint; instance: string };

  constructor(readonly socket: Duplex) {
    this.exchanges.set(0, new Exchange(0, this));
    socket.on('data', (chunk) => this.take(chunk));
    socket.on('error', () => undefined); // 'close' follows and tells every waiter
    this.closed = new Promise((resolve) =>
      socket.once('close', () => {
        for (const exchange of this.exchanges.values())
          exchange.fail(new Error('connection closed'));
        resolve();
      }),
    );
  }

  static async open(path: string, epoch: bigint | number, instance: string): Promise<Connection> {
    const connection = new Connection(connect(path));
    await connection.greet(epoch, instance);
    return connection;
  }

  async greet(epoch: bigint | number, instance: string, version = 1): Promise<void> {
    const hello = await this.control.expect(T.HELLO);
    hello.u32();
    const [theirs, flags, theirEpoch, startedUs] = [
      hello.u16(),
      hello.u16(),
      hello.u64(),
      hello.u64(),
    ];
    hello.u32();
    const theirInstance = hello.bytes().toString();
    this.hello = { version: theirs, flags, epoch: theirEpoch, startedUs, instance: theirInstance };
    const body = new Body()
      .u32(0x58554d56)
      .u16(version)
      .u16(0)
      .u64(epoch)
      .u64(0)
      .u32(1 << 20);
    this.send(T.HELLO, 0, body.bytes(instance).bytes('test'));
    // Answered only once the greeting was taken.
    const echo = new Body().bytes('ready');
    this.send(T.PING, 0, echo);
    await this.control.expect(T.PONG);
  }

  get control(): Exchange {
    return this.exchanges.get(0) as Exchange;
  }

  request(type: number, body = new Body()): Exchange {
    const exchange = new Exchange(++this.lastId, this);
    this.exchanges.set(exchange.id, exchange);
    this.send(type, exchange.id, body);
    return exchange;
  }

  send(type: number, id: number, body = new Body()): void {
    const payload = body.toBuffer();
    const head = Buffer.alloc(9);
    head.writeUInt32LE(payload.length + 5);
    head.writeUInt8(type, 4);
    head.writeUInt32LE(id, 5);
    this.socket.write(Buffer.concat([head, payload]));
  }

  close(): Promise<void> {
    this.socket.destroy();
    return this.closed;
  }

  private take(chunk: Buffer): void {
    this.pending = this.pending.length ? Buffer.concat([this.pending, chunk]) : chunk;
    let at = 0;
    while (this.pending.length - at >= 4) {
      const length = this.pending.readUInt32LE(at);
      if (this.pending.length - at - 4 < length) break;
      const frame = this.pending.subarray(at + 4, at + 4 + length);
      at += 4 + length;
      const id = frame.readUInt32LE(1);
      const type = frame.readUInt8(0);
      this.exchanges.get(id)?.push({ type, id, body: new Bytes(frame.subarray(5)) });
    }
    this.pending = this.pending.subarray(at);
  }
}
