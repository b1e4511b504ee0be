import { setTimeout as sleep } from 'node:timers/promises';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { Events, type NatsConnection } from 'nats';
import type { Copy } from './copy';
import { CopyStream, type CopyStreamSettings, Overtaken } from './copy-stream';
import { AckWindow, type WindowSettings } from './window';

export interface RelayLog {
  debug(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}

export interface CopyRelaySettings extends CopyStreamSettings, WindowSettings {
  /** How long a relay that found another one at work leaves it to it, about. */
  readonly standbyMs: number;
  readonly maxBackoffMs: number;
}

export interface RelayStatus {
  readonly stream: string;
  /** Of the last event that is known to be in the copy. */
  readonly position: bigint | null;
  readonly published: number;
  /** Why it does not publish at the moment, if so. */
  readonly waiting: 'starting' | 'overtaken' | 'failed' | 'stopped' | null;
}

const FIRST_BACKOFF_MS = 100;
const RESUME_MS = 20;
/** After a rest, events are gathered for this long: whoever waits for an answer is served first. */
const GATHER_MS = 10;
/** A relay that waited for its next event for so long has rested. */
const REST_MS = 1;

/**
 * Publishes what a copy holds, in order. Every message names the sequence that it follows, so that of
 * several relays at most one message takes each place, and a lost message keeps out all that come after
 * it. Whatever goes wrong, the relay reads again where the copy ends and goes on from there.
 */
export class CopyRelay {
  private readonly stopping = new AbortController();
  private run = new AbortController();
  private connected = true;
  private reconnected: () => void = () => undefined;
  private position: bigint | null = null;
  private published = 0;
  private waiting: RelayStatus['waiting'] = 'starting';
  private readonly done: Promise<void>;

  constructor(
    private readonly copy: Copy,
    private readonly store: EventStore,
    private readonly connection: NatsConnection,
    private readonly settings: CopyRelaySettings,
    private readonly log: RelayLog,
  ) {
    void this.watchConnection();
    this.done = this.work();
  }

  get status(): RelayStatus {
    const { position, published, waiting } = this;
    return { stream: this.copy.stream, position, published, waiting };
  }

  /** Returns when nothing is under way any more. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.run.abort();
    await this.done;
  }

  private async work(): Promise<void> {
    let backoffMs = FIRST_BACKOFF_MS;
    while (!this.stopping.signal.aborted) {
      const before = this.published;
      try {
        await this.relay();
      } catch (fault) {
        if (this.published > before || !this.connected) backoffMs = FIRST_BACKOFF_MS;
        const stream = this.copy.stream;
        if (fault instanceof Overtaken) {
          this.waiting = 'overtaken';
          this.log.debug({ stream }, 'another relay is at work');
          // Whoever was at work goes on; whoever only came to it leaves it to the other.
          await this.pause(this.published > before ? RESUME_MS : this.settings.standbyMs);
        } else {
          this.waiting = 'failed';
          this.log.warn({ stream, fault, backoffMs }, 'the relay starts again');
          await this.pause(backoffMs);
          backoffMs = Math.min(backoffMs * 2, this.settings.maxBackoffMs);
        }
      }
    }
    this.waiting = 'stopped';
  }

  /** From where the copy ends until something goes wrong or the relay is stopped. */
  private async relay(): Promise<void> {
    const run = new AbortController();
    this.run = run;
    const signal = AbortSignal.any([run.signal, this.stopping.signal]);
    await this.untilConnected(signal);
    if (signal.aborted) return;
    const stream = await CopyStream.open(this.connection, this.copy, this.settings);
    await stream.forgetDeleted();
    const tail = await stream.tail();
    this.position = tail.position;
    this.waiting = null;
    const window = new AckWindow(this.settings, () => run.abort());
    let { sequence } = tail;
    const source = {
      prefixes: this.copy.prefixes,
      ...(tail.position === null ? {} : { afterPosition: tail.position }),
    };
    let busyAt = performance.now();
    for await (const item of this.store.subscribe(source, signal)) {
      if (signal.aborted) break;
      if (item.kind !== 'event') continue;
      if (performance.now() - busyAt > REST_MS) await this.gather(signal);
      const message = this.copy.messageOf(item.event);
      if (!message) continue;
      await window.room(message.data.length);
      if (signal.aborted) break;
      const after = sequence++;
      const { forgets } = message;
      window.add(
        message.data.length,
        stream.publish(message, after).then(async (stored) => {
          this.relayed(item.event);
          if (forgets !== null) await stream.forget(forgets, stored);
        }),
      );
      busyAt = performance.now();
    }
    if (this.stopping.signal.aborted) await window.settled();
    window.rethrow();
    if (!this.stopping.signal.aborted) throw new Error(this.whyItEnded());
  }

  private async gather(signal: AbortSignal): Promise<void> {
    await sleep(GATHER_MS, undefined, { signal }).catch(() => undefined);
  }

  private relayed({ position }: RecordedEvent): void {
    this.published += 1;
    if (this.position === null || position > this.position) this.position = position;
  }

  private whyItEnded(): string {
    return this.connected ? 'the subscription ended' : 'NATS is not connected';
  }

  /** Not the same time for everybody, or two relays would collide again. */
  private async pause(aboutMs: number): Promise<void> {
    const ms = aboutMs * (0.5 + Math.random());
    await sleep(ms, undefined, { signal: this.stopping.signal }).catch(() => undefined);
  }

  private async untilConnected(signal: AbortSignal): Promise<void> {
    if (this.connected || signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.reconnected = resolve;
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }

  /** What is sent into a cut connection is lost or comes late: the run ends at once. */
  private async watchConnection(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type === Events.Disconnect) {
        this.connected = false;
        this.run.abort();
      }
      if (type === Events.Reconnect) {
        this.connected = true;
        this.reconnected();
      }
    }
  }
}
