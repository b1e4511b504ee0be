import { WebSocket } from 'ws';
import { FrameConnection } from './connection';
import { MalformedFrame, StreamCancelled, TunnelBroken, TunnelUnreachable } from './errors';
import {
  encode,
  encodeJson,
  type Frame,
  jsonOf,
  MAX_MESSAGE_BYTES,
  MAX_STREAMS,
  refusedOf,
  TYPE,
} from './frames';
import { TunnelStream } from './stream';

export interface TunnelAddress {
  readonly url: string;
  readonly token: string;
}

/** A stream that this end opened. */
export interface OpenedStream {
  /** What the other end sends, to its end; throws when the stream breaks or is refused. */
  receive(): AsyncGenerator<Buffer, void>;
  send(bytes: Uint8Array): Promise<void>;
  end(): void;
  /** What came of it; rejects with `TunnelRefused` or `TunnelBroken`. */
  readonly result: Promise<unknown>;
  /** Gives it up; what it is doing in the sandbox ends. */
  cancel(): void;
}

const HANDSHAKE_MS = 5_000;

/** One connection to one runner, with many streams. */
export class TunnelConnection {
  private readonly streams = new Map<number, ClientStream>();
  private readonly frames: FrameConnection;
  private lastId = 0;

  private constructor(socket: WebSocket) {
    this.frames = new FrameConnection(socket, (frame) => this.take(frame));
    this.frames.whenEnded((fault) => {
      const broken = fault instanceof TunnelBroken ? fault : new TunnelBroken(fault.message);
      for (const stream of this.streams.values()) stream.fail(broken);
      this.streams.clear();
    });
  }

  static async dial({ url, token }: TunnelAddress): Promise<TunnelConnection> {
    if (!/^wss?:\/\//.test(url)) throw new TunnelUnreachable('its address is not ws:// or wss://');
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${token}` },
      handshakeTimeout: HANDSHAKE_MS,
      perMessageDeflate: false,
      maxPayload: MAX_MESSAGE_BYTES,
    });
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('unexpected-response', (_request, { statusCode }) => {
        socket.terminate();
        reject(new TunnelUnreachable(`it answered ${statusCode}`));
      });
      socket.on('error', (error) => reject(new TunnelUnreachable(error.message, { cause: error })));
    });
    return new TunnelConnection(socket);
  }

  get isOpen(): boolean {
    return this.frames.isOpen && this.lastId < 0xffff_ffff;
  }

  whenEnded(ended: () => void): void {
    this.frames.whenEnded(ended);
  }

  open(request: unknown): OpenedStream {
    if (!this.isOpen) throw new TunnelUnreachable('the connection has ended');
    if (this.streams.size >= MAX_STREAMS)
      throw new TunnelUnreachable(`${MAX_STREAMS} streams are open to it`);
    const id = this.lastId + 1;
    const frame = encodeJson(TYPE.open, id, request);
    this.lastId = id;
    const stream = new ClientStream(new TunnelStream(id, this.frames), () => {
      if (this.streams.delete(id)) this.frames.write(encode(TYPE.cancel, id));
    });
    this.streams.set(id, stream);
    this.frames.write(frame);
    return stream;
  }

  close(): void {
    this.frames.break(new TunnelBroken('closed by this end'));
  }

  private take(frame: Frame): void {
    const stream = this.streams.get(frame.stream);
    if (!stream) {
      // Sent before the other end knew that the stream was given up.
      if (frame.stream >= 1 && frame.stream <= this.lastId) return;
      throw new MalformedFrame(`stream ${frame.stream} was never opened`);
    }
    if (frame.type === TYPE.done) {
      const result = jsonOf(frame);
      this.streams.delete(frame.stream);
      stream.done(result);
    } else if (frame.type === TYPE.error) {
      const refused = refusedOf(frame);
      this.streams.delete(frame.stream);
      stream.fail(refused);
    } else {
      stream.take(frame);
    }
  }
}

class ClientStream implements OpenedStream {
  readonly result: Promise<unknown>;
  private resolve: (result: unknown) => void = () => undefined;
  private reject: (fault: unknown) => void = () => undefined;

  constructor(
    private readonly stream: TunnelStream,
    private readonly giveUp: () => void,
  ) {
    this.result = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // Whoever reads the stream hears of it there.
    this.result.catch(() => undefined);
  }

  receive(): AsyncGenerator<Buffer, void> {
    return this.stream.receive();
  }

  send(bytes: Uint8Array): Promise<void> {
    return this.stream.send(bytes);
  }

  end(): void {
    this.stream.end();
  }

  cancel(): void {
    this.giveUp();
    this.fail(new StreamCancelled());
  }

  take(frame: Frame): void {
    this.stream.take(frame);
  }

  done(result: unknown): void {
    this.stream.close();
    this.resolve(result);
  }

  fail(fault: unknown): void {
    this.stream.close(fault);
    this.reject(fault);
  }
}
