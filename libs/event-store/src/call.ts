import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { FrameParser } from './frames';

// The vendor's client allows for events of 16 MiB, which other writers may have stored.
const MAX_MESSAGE_BYTES = 17 * 1024 * 1024;

const UNKNOWN = 2;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;

/** A call that ended with another status than OK, or without any. */
export class CallFailed extends Error {
  constructor(
    readonly status: number,
    readonly details: string,
    readonly trailers: IncomingHttpHeaders = {},
  ) {
    super(details);
    this.name = 'CallFailed';
  }
}

export interface CallHandler {
  /** At least one, in order. */
  messages(messages: readonly Buffer[]): void;
  /** Once, whoever ended it. Undefined: the server ended it with OK. */
  ended(cause: unknown): void;
}

/**
 * One gRPC call over HTTP/2. What is sent within one turn of the event loop leaves together: for many
 * small messages that is most of the cost.
 */
export class Call {
  private readonly stream: ClientHttp2Stream;
  private readonly parser = new FrameParser(MAX_MESSAGE_BYTES);
  private unsent: Buffer[] = [];
  private fault: unknown;
  private status: CallFailed | 'ok' | undefined;
  private over = false;

  constructor(
    session: ClientHttp2Session,
    headers: OutgoingHttpHeaders,
    private readonly handler: CallHandler,
  ) {
    this.stream = session.request(headers);
    this.stream.on('response', (response) => this.responded(response));
    this.stream.on('trailers', (trailers) => this.concluded(trailers));
    this.stream.on('data', (chunk: Buffer) => this.received(chunk));
    // The server may end a call that this side could still write to.
    this.stream.on('end', () => {
      this.end();
      this.stream.close();
    });
    this.stream.on('error', (fault) => {
      this.fault ??= fault;
    });
    this.stream.on('close', () => this.end());
  }

  /** Takes whole frames. */
  send(frame: Buffer): void {
    this.unsent.push(frame);
    if (this.unsent.length === 1) setImmediate(() => this.flush());
  }

  /** Sends the only message of a call that has one. */
  sendLast(frame: Buffer): void {
    this.stream.end(frame);
  }

  get isPaused(): boolean {
    return this.stream.isPaused();
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  cancel(): void {
    if (this.over) return;
    this.end();
    this.stream.close(constants.NGHTTP2_CANCEL);
  }

  private flush(): void {
    const frames = this.unsent;
    this.unsent = [];
    if (this.over || this.stream.destroyed) return;
    this.stream.cork();
    for (const frame of frames) this.stream.write(frame);
    this.stream.uncork();
  }

  private received(chunk: Buffer): void {
    if (this.over) return;
    try {
      const messages = this.parser.push(chunk);
      if (messages.length > 0) this.handler.messages(messages);
    } catch (fault) {
      this.fault ??= fault;
      this.cancel();
    }
  }

  private responded(headers: IncomingHttpHeaders): void {
    const http = Number(headers[':status']);
    if (headers['grpc-status'] !== undefined) this.concluded(headers);
    else if (http !== 200) {
      const status = http === 401 || http === 403 ? UNAUTHENTICATED : UNAVAILABLE;
      this.status = new CallFailed(status, `HTTP status ${http}`);
    }
  }

  private concluded(headers: IncomingHttpHeaders): void {
    const status = Number(headers['grpc-status'] ?? UNKNOWN);
    const details = plain(String(headers['grpc-message'] ?? ''));
    this.status = status === 0 ? 'ok' : new CallFailed(status, details, headers);
  }

  private end(): void {
    if (this.over) return;
    this.over = true;
    if (this.status === 'ok' && this.fault === undefined) this.handler.ended(undefined);
    else if (this.status instanceof CallFailed) this.handler.ended(this.status);
    else this.handler.ended(this.fault ?? new CallFailed(UNAVAILABLE, 'the connection was lost'));
  }
}

/** Status messages are percent-encoded. */
function plain(message: string): string {
  try {
    return decodeURIComponent(message);
  } catch {
    return message;
  }
}
