import type { Duplex } from 'node:stream';
import {
  PipeBroken,
  ProtocolViolation,
  SandboxError,
  SupervisorRefused,
  WrongSupervisor,
} from './errors';
import { type Hello, readEmpty, readError, readHello } from './supervisor-answers';
import {
  BodyWriter,
  FRAME,
  type Frame,
  FrameDecoder,
  MAGIC,
  MAX_FRAME,
  PROTOCOL_VERSION,
} from './wire';

export interface ConnectOptions {
  readonly epoch: number;
  readonly instance: string;
  readonly helloTimeoutMs?: number;
  /** How often the supervisor hears of this end, at least. */
  readonly speakEveryMs?: number;
  readonly signal?: AbortSignal;
}

/** One open request: takes its answers until one of them closes it. */
export interface RequestHandler {
  /** Returns true when the frame closes the request. Throws `ProtocolViolation` for a frame out of place. */
  onFrame(frame: Frame): boolean;
  /** The supervisor refused, or the pipe is broken: no more frames come. */
  onFault(fault: SandboxError): void;
}

/** The protocol has room for 1024 on each connection. */
const MAX_OPEN = 1000;
const HELLO_MAX_FRAME = 4096;

/** Abandoned by this side: whatever is still under way is dropped until CLOSED comes. */
const abandoned: RequestHandler = {
  onFrame: (frame) => {
    if (frame.type !== FRAME.closed) return false;
    readEmpty(frame, 'CLOSED');
    return true;
  },
  onFault: () => undefined,
};

/**
 * One pipe to one supervisor: greets it, numbers requests and hands answers to them. Everything that comes
 * out of the pipe is hostile; the first byte out of place ends it, and every open request, with a
 * `ProtocolViolation`.
 */
export class SupervisorConnection {
  readonly #requests = new Map<number, RequestHandler>();
  readonly #decoder = new FrameDecoder(HELLO_MAX_FRAME);
  #nextId = 1;
  #hello: Hello | undefined;
  #fault: SandboxError | undefined;
  #drains: (() => void)[] = [];
  #greeted: ((fault?: SandboxError) => void) | undefined;
  readonly #end: (fault: SandboxError) => void;
  /** Resolves with the reason when the pipe has ended. */
  readonly ended: Promise<SandboxError>;

  private constructor(
    readonly pipe: Duplex,
    readonly expected: { readonly epoch: number; readonly instance: string },
  ) {
    let end: (fault: SandboxError) => void = () => undefined;
    this.ended = new Promise((resolve) => {
      end = resolve;
    });
    this.#end = end;
    pipe.on('data', (chunk: Buffer) => this.#receive(chunk));
    pipe.on('drain', () => this.#drained());
    pipe.on('error', (error) => this.break(new PipeBroken(error.message, { cause: error })));
    pipe.on('end', () => this.break(new PipeBroken('it was closed by the other end')));
    pipe.on('close', () => this.break(new PipeBroken('it was closed')));
  }

  static async open(pipe: Duplex, options: ConnectOptions): Promise<SupervisorConnection> {
    const { signal, helloTimeoutMs = 10_000 } = options;
    const connection = new SupervisorConnection(pipe, options);
    const late = setTimeout(
      () => connection.break(new PipeBroken(`no greeting within ${helloTimeoutMs} ms`)),
      helloTimeoutMs,
    );
    const abort = () => connection.break(new PipeBroken('the caller gave up'));
    signal?.addEventListener('abort', abort, { once: true });
    try {
      signal?.throwIfAborted();
      await new Promise<void>((resolve, reject) => {
        connection.#greeted = (fault) => (fault ? reject(fault) : resolve());
        if (connection.#fault) reject(connection.#fault);
      });
      return connection;
    } catch (fault) {
      pipe.destroy();
      throw signal?.aborted ? signal.reason : fault;
    } finally {
      clearTimeout(late);
      signal?.removeEventListener('abort', abort);
    }
  }

  get hello(): Hello {
    if (!this.#hello) throw new Error('not greeted yet');
    return this.#hello;
  }

  /** Sends a request and returns its id. `frameOf` gets the id. */
  request(handler: RequestHandler, frameOf: (id: number) => Buffer): number {
    if (this.#fault) throw this.#fault;
    if (this.#requests.size >= MAX_OPEN)
      throw new SupervisorRefused('limit', `${MAX_OPEN} requests are open on this pipe`, 0, 0);
    while (this.#requests.has(this.#nextId)) this.#advance();
    const id = this.#nextId;
    this.#advance();
    const frame = frameOf(id);
    if (frame.length > MAX_FRAME)
      throw new SupervisorRefused('invalid', `a request of ${frame.length} bytes`, 0, 0);
    this.#requests.set(id, handler);
    this.pipe.write(frame);
    return id;
  }

  /** Sends a frame of an open request; a request that is over takes no more frames. */
  send(frame: Buffer): void {
    if (!this.#fault) this.pipe.write(frame);
  }

  /** Resolves when the pipe takes more; rejects when it is broken. */
  async writable(): Promise<void> {
    while (!this.#fault && this.pipe.writableNeedDrain)
      await new Promise<void>((resolve) => this.#drains.push(resolve));
    if (this.#fault) throw this.#fault;
  }

  isOpen(id: number): boolean {
    const handler = this.#requests.get(id);
    return handler !== undefined && handler !== abandoned;
  }

  /** Gives a request up: its handler hears nothing more. */
  abandon(id: number): void {
    if (!this.isOpen(id)) return;
    this.#requests.set(id, abandoned);
    this.send(new BodyWriter().frame(FRAME.close, id));
  }

  /** Ends the pipe and every open request with it. */
  break(fault: SandboxError): void {
    if (this.#fault) return;
    this.#fault = fault;
    this.pipe.destroy();
    this.#greeted?.(fault);
    const requests = [...this.#requests.values()];
    this.#requests.clear();
    for (const request of requests) request.onFault(fault);
    this.#drained();
    this.#end(fault);
  }

  #advance(): void {
    this.#nextId = this.#nextId === 0xffff_ffff ? 1 : this.#nextId + 1;
  }

  #drained(): void {
    const drains = this.#drains;
    this.#drains = [];
    for (const drain of drains) drain();
  }

  #receive(chunk: Buffer): void {
    try {
      for (const frame of this.#decoder.push(chunk)) {
        if (this.#fault) return;
        this.#take(frame);
      }
    } catch (fault) {
      if (!(fault instanceof SandboxError)) throw fault;
      this.break(fault);
    }
  }

  #take(frame: Frame): void {
    if (!this.#hello) {
      this.#greet(frame);
      return;
    }
    if (frame.id === 0) {
      if (frame.type === FRAME.error) throw readError(frame);
      throw new ProtocolViolation(`a frame of type ${frame.type} for no request`);
    }
    const handler = this.#requests.get(frame.id);
    if (!handler) throw new ProtocolViolation(`an answer to no request (type ${frame.type})`);
    if (frame.type === FRAME.error && handler !== abandoned) {
      const refused = readError(frame);
      this.#requests.delete(frame.id);
      handler.onFault(refused);
    } else if (handler.onFrame(frame)) {
      this.#requests.delete(frame.id);
    }
  }

  #greet(frame: Frame): void {
    if (frame.id === 0 && frame.type === FRAME.error) throw readError(frame);
    if (frame.id !== 0 || frame.type !== FRAME.hello)
      throw new ProtocolViolation(`a frame of type ${frame.type} before the greeting`);
    const hello = readHello(frame);
    if (hello.version !== PROTOCOL_VERSION)
      throw new SupervisorRefused(
        'version',
        `it speaks protocol ${hello.version}, this runner ${PROTOCOL_VERSION}`,
        0,
        hello.version,
      );
    const { epoch, instance } = this.expected;
    if (hello.epoch !== epoch || hello.instance !== instance)
      throw new WrongSupervisor({ epoch, instance }, hello);
    this.#hello = hello;
    this.#decoder.maxFrame = MAX_FRAME;
    const answer = new BodyWriter()
      .u32(MAGIC)
      .u16(PROTOCOL_VERSION)
      .u16(0)
      .u64(epoch)
      .u64(0)
      .u32(MAX_FRAME)
      .bytes(instance)
      .bytes('vmux-runner');
    this.pipe.write(answer.frame(FRAME.hello, 0));
    this.#greeted?.();
  }
}
