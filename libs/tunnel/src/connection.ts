import type { RawData, WebSocket } from 'ws';
import { MalformedFrame, TunnelBroken } from './errors';
import { decode, type Frame } from './frames';
import type { Carrier } from './stream';

const PING_EVERY_MS = 10_000;
/** Streams wait while more than this lies in the socket. */
const HIGH_WATER_BYTES = 512 * 1024;
/** Only an end that reads nothing and asks all the same gets here. */
const TOO_MUCH_BYTES = 128 * 1024 * 1024;

/** A WebSocket as frames, with back-pressure, and an end that is noticed also when nobody says so. */
export class FrameConnection implements Carrier {
  private fault: Error | undefined;
  private waiting: (() => void)[] = [];
  private heard = true;
  private readonly pinging: NodeJS.Timeout;
  private readonly onEnd: ((fault: Error) => void)[] = [];

  constructor(
    private readonly socket: WebSocket,
    private readonly take: (frame: Frame) => void,
  ) {
    socket.on('message', (data, isBinary) => this.receive(data, isBinary));
    socket.on('pong', () => {
      this.heard = true;
    });
    socket.on('close', (code) => this.break(new TunnelBroken(`closed, ${code}`)));
    socket.on('error', (error) => this.break(new TunnelBroken(error.message, { cause: error })));
    this.pinging = setInterval(() => this.ping(), PING_EVERY_MS);
    this.pinging.unref();
  }

  /** Called once; at once when it has ended already. */
  whenEnded(onEnd: (fault: Error) => void): void {
    if (this.fault) onEnd(this.fault);
    else this.onEnd.push(onEnd);
  }

  get isOpen(): boolean {
    return this.fault === undefined;
  }

  write(frame: Buffer): void {
    if (this.fault) return;
    if (this.socket.bufferedAmount > TOO_MUCH_BYTES) {
      this.break(new TunnelBroken('the other end does not read'));
      return;
    }
    this.socket.send(frame, { binary: true }, () => this.wake());
  }

  async writable(): Promise<void> {
    while (!this.fault && this.socket.bufferedAmount > HIGH_WATER_BYTES)
      await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  break(fault: Error): void {
    if (this.fault) return;
    this.fault = fault;
    clearInterval(this.pinging);
    this.socket.terminate();
    this.wake();
    for (const each of this.onEnd) each(fault);
  }

  private receive(data: RawData, isBinary: boolean): void {
    if (this.fault) return;
    this.heard = true;
    try {
      if (!isBinary || !Buffer.isBuffer(data)) throw new MalformedFrame('not binary');
      this.take(decode(data));
    } catch (fault) {
      if (!(fault instanceof MalformedFrame)) throw fault;
      this.break(fault);
    }
  }

  private ping(): void {
    if (!this.heard) {
      this.break(new TunnelBroken('the other end is silent'));
      return;
    }
    this.heard = false;
    this.socket.ping();
  }

  private wake(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const each of waiting) each();
  }
}
