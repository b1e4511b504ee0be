import type { WebSocket } from 'ws';
import { ConnectionFailed, errorFrom, VmuxError } from './errors';
import { nextWriter } from './input';
import { pause, pauseBefore } from './pause';
import { openSocket } from './socket';
import {
  frameFrom,
  inputFrame,
  repaintFrame,
  resizeFrame,
  type TerminalFrame,
} from './terminal-frames';
import { TypedInput } from './typed-input';
import type { CommandExit } from './types';
import type { CallOptions, Vmux } from './vmux';

export interface AttachOptions extends CallOptions {
  /** Of the terminal here. The terminal there takes the size of who attached, resized or typed last. */
  readonly cols?: number;
  readonly rows?: number;
  /** Output from this byte on; without it the screen as it is now, then what follows. */
  readonly offset?: number;
  /** Only look on. */
  readonly watch?: boolean;
  /** Lines above the screen that are repainted too, up to 1000. */
  readonly scrollback?: number;
}

/** What an attached terminal shows. */
export type TerminalItem =
  | Extract<TerminalFrame, { kind: 'hello' | 'bytes' | 'screen' | 'resized' | 'gap' }>
  /** The connection is gone; it is being made again, and nothing is lost. */
  | { readonly kind: 'away' }
  /** Input that was not taken, and why; it is sent again with what is typed next. */
  | { readonly kind: 'refused'; readonly error: VmuxError }
  | { readonly kind: 'exit'; readonly exit: CommandExit };

const maxFrameBytes = 65_536;
const maxHeldItems = 256;
const goneCodes = new Set([1000, 1001, 1005, 1006, 1011, 1012, 1013]);

/**
 * A terminal that is attached to: iterate over it for what it shows, until it has ended. Cut connections
 * and gateways that are started again are not noticed but for an `away`: no byte is lost or repeated, in
 * either direction.
 */
export class Terminal implements AsyncIterable<TerminalItem> {
  private readonly writer = nextWriter();
  private readonly leaving = new AbortController();
  private readonly signal: AbortSignal;
  private socket: WebSocket | null = null;
  private offset: number | undefined;
  private size: { cols: number; rows: number } | null;
  private shown: { cols: number; rows: number } | null = null;
  private readonly input: TypedInput;

  constructor(
    private readonly vmux: Vmux,
    private readonly path: string,
    private readonly options: AttachOptions = {},
  ) {
    const { cols, rows, offset, signal } = options;
    this.size = cols && rows ? { cols, rows } : null;
    this.offset = offset;
    this.input = new TypedInput((at, bytes) => this.send(at, bytes), vmux.retryForMs);
    this.signal = signal ? AbortSignal.any([signal, this.leaving.signal]) : this.leaving.signal;
  }

  /** Types. Waits while a lot has not been taken yet. */
  async type(bytes: string | Uint8Array): Promise<void> {
    await this.input.type(Buffer.from(bytes as Uint8Array), this.signal);
  }

  resize(cols: number, rows: number): void {
    this.size = { cols, rows };
    this.socket?.send(resizeFrame(cols, rows));
  }

  /** Asks for the whole screen. */
  repaint(): void {
    this.socket?.send(repaintFrame());
  }

  /** Leaves; the terminal goes on. */
  detach(): void {
    this.leaving.abort();
    this.input.release();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TerminalItem> {
    let failingSince: number | null = null;
    for (let attempt = 0; ; attempt += 1) {
      try {
        for await (const item of this.connection()) {
          failingSince = null;
          attempt = 0;
          yield item;
          if (item.kind === 'exit') return;
        }
      } catch (fault) {
        if (this.leaving.signal.aborted) return;
        this.signal.throwIfAborted();
        if (!(fault instanceof VmuxError && fault.retryable)) throw fault;
        failingSince ??= Date.now();
        if (Date.now() - failingSince >= this.vmux.retryForMs) throw fault;
      }
      if (this.leaving.signal.aborted) return;
      if (attempt === 0) yield { kind: 'away' };
      await pause(pauseBefore(attempt), this.signal).catch(() => undefined);
      if (this.leaving.signal.aborted) return;
    }
  }

  /** What one connection shows, until it is gone. */
  private async *connection(): AsyncGenerator<TerminalItem> {
    const { watch, scrollback } = this.options;
    // The size is not taken away from somebody who set it while we were gone.
    const isOurs =
      this.shown === null ||
      (this.shown.cols === this.size?.cols && this.shown.rows === this.size.rows);
    const socket = await openSocket(
      this.vmux,
      this.path,
      {
        ...{ writer: this.writer, offset: this.offset, scrollback },
        ...(this.size && isOurs ? this.size : {}),
        mode: watch ? 'watch' : undefined,
      },
      { signal: this.signal },
    );
    const items = new Held<Buffer>(socket);
    const leave = () => socket.close(1000);
    this.signal.addEventListener('abort', leave, { once: true });
    try {
      for await (const message of items) {
        const frame = frameFrom(message);
        const item = frame && this.take(frame, socket);
        if (item) yield item;
      }
    } finally {
      this.signal.removeEventListener('abort', leave);
      this.socket = null;
      this.input.stop();
      socket.close(1000);
    }
  }

  /** Null for what nobody has to see. */
  private take(frame: TerminalFrame, socket: WebSocket): TerminalItem | null {
    switch (frame.kind) {
      case 'hello':
        this.shown = frame.size ?? this.shown;
        if (frame.next !== null) this.input.drop(frame.next);
        this.socket = socket;
        this.input.sendAll();
        return frame;
      case 'taken':
        this.input.drop(frame.next);
        return null;
      case 'bytes': {
        const known = Math.max(0, (this.offset ?? frame.offset) - frame.offset);
        if (known >= frame.bytes.length) return null;
        this.offset = frame.offset + frame.bytes.length;
        return known === 0
          ? frame
          : { kind: 'bytes', offset: frame.offset + known, bytes: frame.bytes.subarray(known) };
      }
      case 'screen':
      case 'resized':
        this.shown = { cols: frame.cols, rows: frame.rows };
        if (frame.kind === 'screen') this.offset = frame.offset;
        return frame;
      case 'gap':
        this.offset = Math.max(this.offset ?? 0, frame.to);
        return frame;
      case 'exit':
        return { kind: 'exit', exit: frame.exit };
      case 'error': {
        const error = errorFrom(frame.body, 0);
        if (frame.fatal) throw error;
        return this.input.isTriedAgain(error) ? null : { kind: 'refused', error };
      }
    }
  }

  private send(offset: number, bytes: Buffer): void {
    for (let at = 0; at < bytes.length; at += maxFrameBytes)
      this.socket?.send(inputFrame(offset + at, bytes.subarray(at, at + maxFrameBytes)));
  }
}

/** Messages in their order; the socket is not read while many of them wait. */
class Held<T> implements AsyncIterable<T> {
  private readonly waiting: T[] = [];
  private closed: number | null = null;
  private wake: () => void = () => undefined;

  constructor(private readonly socket: WebSocket) {
    socket.on('message', (message) => {
      this.waiting.push(message as T);
      if (this.waiting.length >= maxHeldItems) socket.pause();
      this.wake();
    });
    socket.once('close', (code) => {
      this.closed = code;
      this.wake();
    });
    socket.resume();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      const next = this.waiting.shift();
      if (next !== undefined) {
        if (this.socket.isPaused && this.waiting.length < maxHeldItems / 2) this.socket.resume();
        yield next;
      } else if (this.closed === null)
        await new Promise<void>((resolve) => {
          this.wake = resolve;
        });
      else if (goneCodes.has(this.closed))
        throw new ConnectionFailed(this.socket.url.split('?')[0] ?? '', `closed ${this.closed}`);
      else
        throw new VmuxError(
          'connection_closed',
          `the gateway closed the connection (${this.closed})`,
          'see what became of the session',
        );
    }
  }
}
