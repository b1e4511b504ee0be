import { setTimeout as sleep } from 'node:timers/promises';
import type { RawData, WebSocket } from 'ws';
import { type ExecView, execHasEnded } from '../application/exec-view';
import type { LogItem } from '../application/log-cursor';
import type { LogEnd, LogReader } from '../application/log-reader';
import { exitJson } from '../application/present';
import type { Place, SandboxStreams } from '../data-plane/sandbox-streams';
import { ApiError } from '../http/api-error';
import { bodyOf } from '../http/error.filter';
import { apiErrorOf } from '../http/translate';
import * as frames from './frames';
import type { Screens } from './screens';
import { TerminalInput } from './terminal-input';

export interface AttachRequest {
  readonly sessionId: string;
  readonly exec: ExecView;
  readonly mode: 'type' | 'watch';
  readonly writer: number;
  /** Null: the screen as it is now, then what follows. */
  readonly offset: number | null;
  readonly size: frames.Size | null;
  readonly scrollback: number;
}

export interface AttachPort {
  readonly logs: LogReader;
  readonly screens: Screens;
  readonly streams: Pick<SandboxStreams, 'open'>;
  /** Aborts when the client may no longer be here, or this process ends. */
  readonly signal: AbortSignal;
  readonly keepAliveMs: number;
  /** A client that asks for more often gets one of them. */
  readonly repaintEveryMs?: number;
  place(): Promise<Place>;
  /** The exec as of now; throws when it is gone. */
  current(): Promise<ExecView>;
  /** This client has the terminal's attention now; false when it had it already. */
  isNews(): boolean;
  /** Why the signal aborted. */
  reason(): { readonly code: number; readonly text: string };
  onFault(fault: unknown): void;
}

const HIGH_WATER_BYTES = 256 * 1024;
const GONE_AFTER_MS = 1_000;
const REPAINT_EVERY_MS = 250;
/** Of answers that a client asks for and does not take: far more than any screen. */
const MAX_BUFFERED_BYTES = 32 * 1024 * 1024;

/** One client at one terminal. */
export class Attachment {
  private readonly over = new AbortController();
  private readonly input: TerminalInput;
  private size: frames.Size | null;
  private reading = new AbortController();
  private repaints = false;
  private mayPaintAt = 0;
  private heard = true;
  /** What it sends is not read now, its pongs among it. */
  private isHeld = false;
  private wake: () => void = () => undefined;

  constructor(
    private readonly socket: WebSocket,
    private readonly request: AttachRequest,
    private readonly port: AttachPort,
  ) {
    this.size = request.size;
    const { exec, writer } = request;
    this.input = new TerminalInput({
      ...{ execId: exec.id, writer, streams: port.streams, signal: this.over.signal },
      place: () => port.place(),
      taken: (next) => this.send(frames.taken(next)),
      refused: (fault) => this.tell(fault, false),
      full: (isFull) => {
        this.isHeld = isFull;
        if (isFull) socket.pause();
        else socket.resume();
      },
    });
    socket.on('message', (data, isBinary) => this.receive(data, isBinary));
    socket.on('pong', () => {
      this.heard = true;
    });
    socket.on('close', () => this.end());
    socket.on('error', () => this.end());
  }

  /** Until the exec has ended or the client goes. */
  async run(): Promise<void> {
    const leave = () => this.leave();
    this.port.signal.addEventListener('abort', leave, { once: true });
    const pinging = setInterval(() => this.ping(), this.port.keepAliveMs);
    try {
      if (this.port.signal.aborted) return leave();
      this.greet();
      await this.show();
    } catch (fault) {
      if (this.over.signal.aborted) return;
      this.tell(fault, true);
      this.close(isPassing(apiErrorOf(fault)) ? 1013 : 1011, 'see the error');
    } finally {
      clearInterval(pinging);
      this.port.signal.removeEventListener('abort', leave);
      this.end();
    }
  }

  private greet(): void {
    const { sessionId, exec, mode, writer } = this.request;
    const { protocol, status } = { protocol: frames.PROTOCOL, status: exec.status };
    this.send(frames.hello({ protocol, sessionId, execId: exec.id, mode, writer, status }));
    if (mode === 'watch' || execHasEnded(exec)) return;
    if (this.size) this.attend(this.size);
    else void this.input.arrive();
  }

  private async show(): Promise<void> {
    let offset = this.request.offset;
    for (;;) {
      offset ??= await this.paint();
      this.reading = new AbortController();
      if (this.repaints) this.reading.abort();
      const end = await this.follow(offset);
      if (this.over.signal.aborted) return;
      if (this.repaints) {
        await this.untilMayPaint();
        if (this.over.signal.aborted) return;
        this.repaints = false;
        offset = null;
        continue;
      }
      const exec = await this.port.current();
      this.send(frames.exit({ exit: exitJson(exec), next: end.next }));
      return this.close(1000, 'the exec has ended');
    }
  }

  /** A screen costs more to paint than to ask for. */
  private async untilMayPaint(): Promise<void> {
    const ms = this.mayPaintAt - performance.now();
    if (ms <= 0) return;
    await sleep(ms, undefined, { signal: this.over.signal, ref: false }).catch(() => undefined);
  }

  private async paint(): Promise<number> {
    const { sessionId, exec, scrollback } = this.request;
    this.mayPaintAt = performance.now() + (this.port.repaintEveryMs ?? REPAINT_EVERY_MS);
    const { offset, size, bytes } = await this.port.screens.paint(sessionId, exec, scrollback);
    await this.sendWhenTaken(frames.screen(offset, size, bytes));
    return offset;
  }

  private async follow(offset: number): Promise<LogEnd> {
    const { sessionId, exec } = this.request;
    const target = { kind: 'stream', exec, stream: 'pty' } as const;
    const signal = AbortSignal.any([this.over.signal, this.reading.signal]);
    const items = await this.port.logs.open({ sessionId, target, offset, follow: true, signal });
    for (;;) {
      const step = await items.next();
      if (step.done) return step.value;
      await this.sendWhenTaken(frameOf(step.value));
    }
  }

  private receive(data: RawData, isBinary: boolean): void {
    this.heard = true;
    try {
      if (!isBinary || !Buffer.isBuffer(data)) throw new frames.MalformedMessage('not binary');
      const message = frames.decode(data);
      if (message.kind === 'repaint') this.repaint();
      else if (this.request.mode === 'watch') this.tell(WATCHING, false);
      else if (message.kind === 'resize') this.resize(message);
      else this.type(message.offset, message.bytes);
    } catch (fault) {
      if (!(fault instanceof frames.MalformedMessage)) throw fault;
      this.close(1008, fault.message);
    }
  }

  private type(offset: number, bytes: Buffer): void {
    if (this.size && this.port.isNews()) this.input.resize(this.size);
    const missing = this.input.take(offset, bytes);
    if (missing)
      this.tell(new ApiError('input_gap', 'bytes before these are missing', null, missing), false);
  }

  private resize({ cols, rows }: frames.Size): void {
    this.size = { cols, rows };
    this.attend(this.size);
  }

  private attend(size: frames.Size): void {
    this.port.isNews();
    this.input.resize(size);
  }

  private repaint(): void {
    this.repaints = true;
    this.reading.abort();
  }

  private tell(fault: unknown, fatal: boolean): void {
    const error = apiErrorOf(fault);
    if (error.code === 'internal') this.port.onFault(fault);
    this.send(frames.error({ ...bodyOf(error), fatal }));
  }

  private send(frame: Buffer): void {
    if (this.over.signal.aborted) return;
    if (this.socket.bufferedAmount > MAX_BUFFERED_BYTES) {
      this.socket.terminate();
      this.end();
      return;
    }
    this.socket.send(frame, { binary: true }, () => this.wake());
  }

  private async sendWhenTaken(frame: Buffer): Promise<void> {
    this.send(frame);
    while (!this.over.signal.aborted && this.socket.bufferedAmount > HIGH_WATER_BYTES)
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
  }

  private ping(): void {
    if (!this.heard && !this.isHeld) {
      this.socket.terminate();
      return;
    }
    this.heard = false;
    this.socket.ping();
  }

  private leave(): void {
    const { code, text } = this.port.reason();
    this.close(code, text);
  }

  private close(code: number, text: string): void {
    this.socket.close(code, text);
    // A client that does not answer must not hold up the end of this process.
    setTimeout(() => this.socket.terminate(), GONE_AFTER_MS).unref();
    this.end();
  }

  private end(): void {
    this.over.abort();
    this.wake();
  }
}

const WATCHING = new ApiError('forbidden', 'you watch: typing needs the scope sessions:write');

const isPassing = ({ retryAfterSeconds }: ApiError): boolean => retryAfterSeconds !== null;

function frameOf(item: LogItem): Buffer {
  switch (item.kind) {
    case 'bytes':
      return frames.output(item.offset, item.bytes);
    case 'resize':
      return frames.resized(item.offset, item);
    case 'gap':
      return frames.gap(item.from, item.to, item.reason);
  }
}
