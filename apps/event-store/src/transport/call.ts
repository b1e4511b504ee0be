import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { CallError, Status, type StatusCode } from '../protocol/status';
import { MalformedMessage } from '../protocol/wire';
import { FrameParser } from './frames';

/**
 * The client sends an append of any size in one message, and one that is too large must be received to be
 * refused by the protocol's own error, which names it.
 */
const MAX_MESSAGE_BYTES = 17 * 1024 * 1024;

export interface CallHandler {
  message(message: Buffer): void;
  /** The client has sent everything. */
  end?(): void;
  /** The call is over, whoever ended it. */
  closed?(): void;
}

/** One gRPC call: frames and statuses over an HTTP/2 stream. */
export class Call {
  private handler: CallHandler | undefined;
  private readonly parser = new FrameParser(MAX_MESSAGE_BYTES);
  private outgoing: Buffer[] = [];
  private flushing = false;
  private ended = false;
  private drains: (() => void)[] = [];

  constructor(
    private readonly stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    private readonly failed: (error: unknown) => void,
  ) {
    this.deadlineMs = Date.now() + timeoutMs(headers['grpc-timeout']);
    stream.on('error', () => {
      // A broken connection; 'close' follows and ends the call.
    });
  }

  get isOver(): boolean {
    return this.ended || this.stream.destroyed || this.stream.closed;
  }

  /** Milliseconds since the epoch; infinite when the client sets no time limit. */
  readonly deadlineMs: number;

  serve(handler: CallHandler): void {
    this.handler = handler;
    const { stream } = this;
    stream.respond(
      { ':status': 200, 'content-type': 'application/grpc' },
      { waitForTrailers: true },
    );
    stream.on('data', (chunk: Buffer) => this.received(chunk));
    stream.on('end', () => this.guard(() => this.receivedAll()));
    stream.on('drain', () => this.drained());
    stream.on('close', () => {
      this.ended = true;
      this.drained();
      handler.closed?.();
    });
  }

  /** Stops reading from the client until `resume`: it is held back by flow control. */
  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    if (!this.isOver) this.stream.resume();
  }

  /** Sends frames. Frames sent in one turn leave as one write. */
  send(frames: Buffer): void {
    if (this.isOver) return;
    this.outgoing.push(frames);
    if (this.flushing) return;
    this.flushing = true;
    queueMicrotask(() => this.flush());
  }

  /** Sends frames now. False: wait for `writable` before sending more. */
  sendNow(frames: Buffer): boolean {
    if (this.isOver) return false;
    this.outgoing.push(frames);
    return this.flush();
  }

  /** Resolves when more may be sent, or when the call is over. */
  writable(): Promise<void> {
    if (this.isOver || !this.stream.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve) => this.drains.push(resolve));
  }

  get bufferedBytes(): number {
    return this.stream.writableLength;
  }

  finish(status: StatusCode, message = '', trailers: Readonly<Record<string, string>> = {}): void {
    if (this.isOver) return;
    this.flush();
    this.ended = true;
    this.parser.clear();
    const last = statusHeaders(status, message, trailers);
    if (!this.stream.headersSent) {
      this.stream.respond(
        { ':status': 200, 'content-type': 'application/grpc', ...last },
        { endStream: true },
      );
    } else {
      this.stream.on('wantTrailers', () => this.stream.sendTrailers(last));
      this.stream.end();
    }
    // The rest of the request, if any, is taken off the wire and dropped: 'close' needs its end.
    this.stream.resume();
  }

  fail(error: unknown): void {
    if (error instanceof MalformedMessage) this.finish(Status.INVALID_ARGUMENT, error.message);
    else if (error instanceof CallError) this.finish(error.status, error.message, error.trailers);
    else {
      this.failed(error);
      this.finish(Status.INTERNAL, 'internal error, see the log of the event store');
    }
  }

  /** Ends the call without waiting for the client to take what was sent. */
  abort(): void {
    this.stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Runs part of a handler: whatever it throws ends this call and nothing else. */
  guard(part: () => void): void {
    try {
      part();
    } catch (error) {
      this.fail(error);
    }
  }

  private received(chunk: Buffer): void {
    if (this.ended) return;
    this.guard(() => {
      for (const message of this.parser.push(chunk)) {
        if (this.ended) return;
        this.handler?.message(message);
      }
    });
  }

  private receivedAll(): void {
    if (this.ended) return;
    this.parser.end();
    this.handler?.end?.();
  }

  private flush(): boolean {
    this.flushing = false;
    if (this.outgoing.length === 0 || this.isOver) return true;
    const [first] = this.outgoing;
    const bytes = this.outgoing.length === 1 && first ? first : Buffer.concat(this.outgoing);
    this.outgoing = [];
    return this.stream.write(bytes);
  }

  private drained(): void {
    for (const resolve of this.drains.splice(0)) resolve();
  }
}

const statusHeaders = (
  status: StatusCode,
  message: string,
  trailers: Readonly<Record<string, string>>,
): Record<string, string> => ({
  'grpc-status': String(status),
  ...(message && { 'grpc-message': percentEncoded(message) }),
  ...Object.fromEntries(Object.entries(trailers).map(([key, value]) => [key, asHeader(value)])),
});

const UNIT_MS: Record<string, number> = { H: 3.6e6, M: 6e4, S: 1e3, m: 1, u: 1e-3, n: 1e-6 };

/** The `grpc-timeout` header: up to eight digits and a unit. What is not of that form limits nothing. */
function timeoutMs(header: string | string[] | undefined): number {
  const [, digits, unit] = /^(\d{1,8})([HMSmun])$/.exec(String(header ?? '')) ?? [];
  return digits && unit ? Number(digits) * (UNIT_MS[unit] ?? 1) : Number.POSITIVE_INFINITY;
}

/** Only what gRPC asks for is encoded: everything but visible ASCII, and the percent sign. */
const percentEncoded = (text: string): string =>
  wellFormed(text).replace(/[^\x20-\x7e]+|%/g, encodeURIComponent);

/** Header values are visible ASCII; a stream name may be anything. */
const asHeader = (text: string): string =>
  /^[\x20-\x7e]*$/.test(text) ? text : encodeURIComponent(wellFormed(text));

/** Without lone surrogates, which cannot be percent-encoded. */
const wellFormed = (text: string): string => Buffer.from(text, 'utf8').toString('utf8');
