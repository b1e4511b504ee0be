import { setTimeout as sleep } from 'node:timers/promises';
import { TunnelBroken, TunnelRefused, TunnelUnreachable } from '@vmux/tunnel';
import type { Place, SandboxStreams } from '../data-plane/sandbox-streams';
import type { Size } from './frames';

/** What one client types into one terminal. */
export interface InputPort {
  readonly execId: string;
  readonly writer: number;
  readonly streams: Pick<SandboxStreams, 'open'>;
  readonly signal: AbortSignal;
  /** Where the terminal runs; a session that rests is woken for it. */
  place(): Promise<Place>;
  /** Everything below has been taken by the sandbox. */
  taken(next: number): void;
  refused(fault: unknown): void;
  /** More is queued than should be, or no longer. */
  full(isFull: boolean): void;
}

const MAX_QUEUED_BYTES = 256 * 1024;
const MAX_SENT_BYTES = 64 * 1024;
const RETRY_FOR_MS = 20_000;
const RETRY_EVERY_MS = 200;

/**
 * Carries numbered input to the sandbox in order. A piece whose answer was lost is sent again as it was:
 * the sandbox drops what it has taken before.
 */
export class TerminalInput {
  private queue: Buffer[] = [];
  private queuedBytes = 0;
  /** Of the first byte in the queue, and after the last one; null before the first input. */
  private begin = 0;
  private end: number | null = null;
  private isPumping = false;
  private size: Size | null = null;
  private isResizing = false;
  private found: Place | null = null;

  constructor(private readonly port: InputPort) {}

  /** False when bytes are missing before these; `expected` says from where. */
  take(offset: number, bytes: Buffer): { readonly expected: number } | null {
    if (this.end === null) this.begin = this.end = offset;
    if (offset > this.end) return { expected: this.end };
    const fresh = bytes.subarray(this.end - offset);
    if (fresh.length === 0) return null;
    this.queue.push(fresh);
    this.queuedBytes += fresh.length;
    this.end += fresh.length;
    if (this.queuedBytes > MAX_QUEUED_BYTES) this.port.full(true);
    void this.pump();
    return null;
  }

  /** Somebody is here: a session that rests is woken, before anything is typed. */
  async arrive(): Promise<void> {
    try {
      await this.persistently(async () => undefined);
    } catch (fault) {
      if (!this.port.signal.aborted) this.port.refused(fault);
    }
  }

  /** Only the last of several sizes matters. */
  resize(size: Size): void {
    this.size = size;
    void this.applySize();
  }

  private async pump(): Promise<void> {
    if (this.isPumping) return;
    this.isPumping = true;
    try {
      while (this.queuedBytes > 0 && !this.port.signal.aborted) {
        const piece = Buffer.concat(this.queue).subarray(0, MAX_SENT_BYTES);
        const next = await this.persistently((place) => this.send(place, piece));
        this.drop(next);
        this.port.taken(next);
      }
    } catch (fault) {
      this.queue = [];
      this.queuedBytes = 0;
      this.end = null;
      this.port.full(false);
      if (!this.port.signal.aborted) this.port.refused(fault);
    } finally {
      this.isPumping = false;
    }
  }

  private async send(place: Place, piece: Buffer): Promise<number> {
    const { execId, writer, streams, signal } = this.port;
    const request = { op: 'stdin', execId, writer, offset: this.begin, eof: false } as const;
    const stream = await streams.open(place, request, signal);
    await stream.send(piece);
    stream.end();
    const { next } = (await stream.result) as { next: number };
    return next;
  }

  private drop(next: number): void {
    const rest = Buffer.concat(this.queue).subarray(Math.max(0, next - this.begin));
    this.queue = rest.length > 0 ? [rest] : [];
    this.begin = Math.max(next, this.begin);
    this.queuedBytes = rest.length;
    if (this.queuedBytes <= MAX_QUEUED_BYTES) this.port.full(false);
  }

  private async applySize(): Promise<void> {
    if (this.isResizing) return;
    this.isResizing = true;
    try {
      while (this.size && !this.port.signal.aborted) {
        const { cols, rows } = this.size;
        this.size = null;
        const { execId, streams, signal } = this.port;
        await this.persistently(async (place) => {
          const request = { op: 'resize', execId, cols, rows } as const;
          const stream = await streams.open(place, request, signal);
          await stream.result;
        });
      }
    } catch (fault) {
      if (!this.port.signal.aborted) this.port.refused(fault);
    } finally {
      this.isResizing = false;
    }
  }

  private async persistently<T>(attempt: (place: Place) => Promise<T>): Promise<T> {
    for (let waitedMs = 0; ; waitedMs += RETRY_EVERY_MS) {
      try {
        this.found ??= await this.port.place();
        return await attempt(this.found);
      } catch (fault) {
        this.found = null;
        if (!isPassing(fault) || waitedMs >= RETRY_FOR_MS || this.port.signal.aborted) throw fault;
        await sleep(RETRY_EVERY_MS);
      }
    }
  }
}

/** The same may succeed shortly, and what was taken before is not taken again. */
function isPassing(fault: unknown): boolean {
  if (fault instanceof TunnelUnreachable || fault instanceof TunnelBroken) return true;
  if (!(fault instanceof TunnelRefused)) return false;
  return PASSING.includes(fault.code);
}

const PASSING: readonly TunnelRefused['code'][] = [
  'unavailable',
  'interrupted',
  'stale_sandbox',
  'limit',
];
