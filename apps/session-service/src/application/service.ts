import { setTimeout as sleep } from 'node:timers/promises';
import { type EventStore, StreamNotFound } from '@vmux/event-store';
import { type Presence, SERVICE_PRESENCE_SUBJECT } from '@vmux/events';
import { type Bus, encodeJson, timeLimit } from '@vmux/messaging';
import type { Deciding } from './deciding';
import type { GuardedStore } from './guarded-store';
import type { Log } from './log';
import type { LogWriting } from './log-writing';
import type { OpenSessions } from './open-sessions';
import type { Orders } from './orders';
import { type Peers, PRESENCE_EVERY_MS } from './peers';
import type { Readiness } from './readiness';
import type { Room } from './room';
import type { Runners } from './runners';

const LOOK_AROUND_EVERY_MS = 500;
const PROBE_EVERY_MS = 2000;
const PROBE_TIMEOUT_MS = 1500;
const ROOM_EVERY_MS = 5000;
const KEEP_INDEX_EVERY_MS = 30_000;
const FOLLOW_AGAIN_MS = 1000;

export interface ServiceParts {
  readonly bus: Bus;
  readonly store: EventStore;
  readonly guard: GuardedStore;
  readonly open: OpenSessions;
  readonly orders: Orders;
  readonly deciding: Deciding;
  readonly writing: LogWriting;
  readonly peers: Peers;
  readonly runners: Runners;
  readonly room: Room;
  readonly readiness: Readiness;
  readonly log: Log;
}

/** Everything that this process does by itself, from its start to its end. */
export class Service {
  private readonly stopping = new AbortController();
  private readonly loops: Promise<void>[] = [];
  private livingPeers = '';
  private wasConnected = true;
  private answered = true;

  constructor(private readonly parts: ServiceParts) {}

  start(): void {
    const { room, open, runners } = this.parts;
    this.loops.push(
      this.follow(),
      this.every(LOOK_AROUND_EVERY_MS, () => this.lookAround()),
      this.every(PRESENCE_EVERY_MS, () => this.showPresence(false)),
      this.every(PROBE_EVERY_MS, () => this.probe()),
      this.every(ROOM_EVERY_MS, () => room.look()),
      this.every(KEEP_INDEX_EVERY_MS, () => {
        runners.forgetSilent();
        return open.keep();
      }),
    );
  }

  /** Finishes what is under way. Nothing new may come in any more. */
  async stop(): Promise<void> {
    const { orders, deciding, writing, open, log } = this.parts;
    this.stopping.abort();
    await orders.stop();
    await Promise.all([deciding.idle(), writing.idle()]);
    await Promise.all(this.loops);
    this.showPresence(true);
    await open.keep().catch((fault: unknown) => log.warn({ fault }, 'the index was not kept'));
  }

  private async follow(): Promise<void> {
    const { open, orders, log } = this.parts;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        await open.follow(signal, () => orders.lookAtAll());
      } catch (fault) {
        if (signal.aborted) return;
        log.warn({ fault }, 'the histories cannot be followed: trying again');
        await this.pause(FOLLOW_AGAIN_MS);
      }
    }
  }

  private lookAround(): void {
    const { bus, runners, peers, orders, readiness } = this.parts;
    readiness.set('nats', bus.connected ? null : 'not connected to NATS');
    if (!bus.connected) runners.deaf();
    else if (!this.wasConnected) orders.sendAllAgain();
    this.wasConnected = bus.connected;
    const living = peers.living().join(' ');
    if (living === this.livingPeers) return;
    this.livingPeers = living;
    orders.lookAtAll();
  }

  private showPresence(leaving: boolean): void {
    const { bus, peers } = this.parts;
    const presence: Presence = { instance: peers.self, leaving };
    bus.publish(SERVICE_PRESENCE_SUBJECT, encodeJson(presence));
  }

  /** One probe that fails may be a restart that others wait out; two are an outage. */
  private async probe(): Promise<void> {
    const { store, guard, readiness } = this.parts;
    const answers = await answersNow(store);
    readiness.set('store', answers ? null : 'the event store does not answer');
    if (answers || !this.answered) guard.answers(answers);
    this.answered = answers;
  }

  private async every(periodMs: number, act: () => Promise<void> | void): Promise<void> {
    while (!this.stopping.signal.aborted) {
      try {
        await act();
      } catch (fault) {
        this.parts.log.warn({ fault }, 'something that is done from time to time failed');
      }
      await this.pause(periodMs);
    }
  }

  private async pause(ms: number): Promise<void> {
    const { signal } = this.stopping;
    await sleep(ms, undefined, { signal }).catch((fault: unknown) => {
      if (!signal.aborted) throw fault;
    });
  }
}

async function answersNow(store: EventStore): Promise<boolean> {
  try {
    const signal = timeLimit(PROBE_TIMEOUT_MS);
    for await (const _ of store.read('probe', { limit: 1, signal })) break;
    return true;
  } catch (fault) {
    return fault instanceof StreamNotFound;
  }
}
