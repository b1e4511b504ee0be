import { MalformedFrame } from './errors';
import {
  creditOf,
  dataOf,
  encode,
  encodeCredit,
  type Frame,
  MAX_DATA_BYTES,
  TYPE,
  WINDOW_BYTES,
} from './frames';

/** What a stream needs of the connection it is on. */
export interface Carrier {
  write(frame: Buffer): void;
  /** Resolves when the connection takes more, or has ended. */
  writable(): Promise<void>;
}

/**
 * One stream, as either end sees it: bytes both ways, each direction with a credit of its own, so that a
 * slow reader holds up its own stream alone and never more than a window lies in memory.
 */
export class TunnelStream {
  private readonly over = new AbortController();
  private readonly arrived: Buffer[] = [];
  private receivable = WINDOW_BYTES;
  private toGrant = 0;
  private sendable = WINDOW_BYTES;
  private theirEnd = false;
  private ourEnd = false;
  private closed: { readonly fault: unknown } | undefined;
  private waiting: (() => void)[] = [];

  constructor(
    readonly id: number,
    private readonly carrier: Carrier,
  ) {}

  /** Aborts when the stream is over, with the reason. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  get isOpen(): boolean {
    return this.closed === undefined;
  }

  /** What the other end sends, to its end. A stream that breaks throws: it never looks like an end. */
  async *receive(): AsyncGenerator<Buffer, void> {
    for (;;) {
      const piece = this.arrived.shift();
      if (piece) {
        yield piece;
        this.taken(piece.length);
      } else if (this.theirEnd) {
        return;
      } else if (this.closed) {
        if (this.closed.fault !== null) throw this.closed.fault;
        return;
      } else {
        await this.change();
      }
    }
  }

  /** Resolves when all of it is on its way; after the stream is done, what is left is not sent. */
  async send(bytes: Uint8Array): Promise<void> {
    let rest = bytes;
    while (rest.length > 0) {
      await this.carrier.writable();
      while (this.sendable === 0 && !this.closed) await this.change();
      if (this.closed) {
        if (this.closed.fault !== null) throw this.closed.fault;
        return;
      }
      const size = Math.min(rest.length, this.sendable, MAX_DATA_BYTES);
      this.sendable -= size;
      this.carrier.write(encode(TYPE.data, this.id, rest.subarray(0, size)));
      rest = rest.subarray(size);
    }
  }

  /** No more will be sent; the other direction goes on. */
  end(): void {
    if (this.closed || this.ourEnd) return;
    this.ourEnd = true;
    this.carrier.write(encode(TYPE.end, this.id));
  }

  /** DATA, END or CREDIT from the other end. */
  take(frame: Frame): void {
    switch (frame.type) {
      case TYPE.data: {
        const data = dataOf(frame);
        this.receivable -= data.length;
        if (this.theirEnd || this.receivable < 0) throw new MalformedFrame('data out of turn');
        this.arrived.push(data);
        break;
      }
      case TYPE.end:
        if (frame.body.length > 0 || this.theirEnd) throw new MalformedFrame('a second end');
        this.theirEnd = true;
        break;
      case TYPE.credit:
        this.sendable += creditOf(frame);
        if (this.sendable > WINDOW_BYTES) throw new MalformedFrame('too much credit');
        break;
      default:
        throw new MalformedFrame(`type ${frame.type}`);
    }
    this.wake();
  }

  /** The stream is over: as it should be without a fault. What has arrived can still be read. */
  close(fault: unknown = null): void {
    if (this.closed) return;
    this.closed = { fault };
    this.over.abort(fault ?? new Error('the stream is over'));
    this.wake();
  }

  private taken(bytes: number): void {
    this.toGrant += bytes;
    if (this.toGrant < WINDOW_BYTES / 4 || this.theirEnd || this.closed) return;
    this.receivable += this.toGrant;
    this.carrier.write(encodeCredit(this.id, this.toGrant));
    this.toGrant = 0;
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  private wake(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const each of waiting) each();
  }
}
