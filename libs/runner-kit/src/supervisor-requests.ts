import { ProtocolViolation, type SandboxError } from './errors';
import type { RequestHandler, SupervisorConnection } from './supervisor-connection';
import { BodyWriter, FRAME, type Frame } from './wire';

/** How many bytes of one stream may lie in this process before they are read. */
export const WINDOW_BYTES = 256 * 1024;

export const outOfPlace = (frame: Frame, request: string): ProtocolViolation =>
  new ProtocolViolation(`a frame of type ${frame.type} in answer to ${request}`);

/** One request with one answer. An abort gives the request up; what it has begun goes on. */
export function ask<T>(
  connection: SupervisorConnection,
  name: string,
  frameOf: (id: number) => Buffer,
  answers: Readonly<Record<number, (frame: Frame) => T>>,
  signal?: AbortSignal,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    signal?.throwIfAborted();
    const settle = () => signal?.removeEventListener('abort', abort);
    const handler: RequestHandler = {
      onFrame: (frame) => {
        const read = answers[frame.type];
        if (!read) throw outOfPlace(frame, name);
        resolve(read(frame));
        settle();
        return true;
      },
      onFault: (fault) => {
        settle();
        reject(fault);
      },
    };
    const id = connection.request(handler, frameOf);
    const abort = () => {
      connection.abandon(id);
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** The receiving end of a stream: counts what was granted and grants more as it is used up. */
export class ReceiveWindow {
  #granted: number;
  #toGrant = 0;

  constructor(readonly size = WINDOW_BYTES) {
    this.#granted = size;
  }

  received(bytes: number): void {
    this.#granted -= bytes;
    if (this.#granted < 0) throw new ProtocolViolation('more bytes than were granted');
  }

  /** Says that the reader has taken so many bytes; grants them again, in larger steps. */
  taken(bytes: number, connection: SupervisorConnection, id: number): void {
    this.#toGrant += bytes;
    if (this.#toGrant < this.size / 4 || !connection.isOpen(id)) return;
    connection.send(new BodyWriter().u32(this.#toGrant).frame(FRAME.credit, id));
    this.#granted += this.#toGrant;
    this.#toGrant = 0;
  }
}

/** The sending end: waits until the other side grants. */
export class SendWindow {
  #granted = 0;
  #fault: SandboxError | undefined;
  #closed = false;
  #waiting: (() => void)[] = [];

  grant(bytes: number): void {
    this.#granted += bytes;
    if (this.#granted > Number.MAX_SAFE_INTEGER) throw new ProtocolViolation('an endless credit');
    this.#wake();
  }

  fail(fault: SandboxError): void {
    this.#fault = fault;
    this.#wake();
  }

  /** The request is over: nothing more can be sent. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** How many of `want` bytes may be sent now, at least one; 0 when the request is over. */
  async take(want: number): Promise<number> {
    while (this.#granted === 0 && !this.#fault && !this.#closed)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#fault) throw this.#fault;
    if (this.#closed) return 0;
    const taken = Math.min(want, this.#granted);
    this.#granted -= taken;
    return taken;
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}
