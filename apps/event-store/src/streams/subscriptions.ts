import { randomUUID } from 'node:crypto';
import { caughtUp, confirmation } from '../protocol/read-responses';
import type { CommittedEvent } from '../storage/writer';
import type { Call } from '../transport/call';
import type { Feed } from './feeds';

const BATCH_EVENTS = 512;
/** More than this at once goes through the store, in batches that wait for the reader. */
const LIVE_BYTES = 256 * 1024;

/**
 * Catches up from the store, then takes what is published. Both happen in one turn of the event loop each,
 * so that nothing can be published between the last empty read and going live: no gap and no repeat. A
 * reader that does not keep up goes back to reading from the store: nothing queues up for it here.
 */
class Subscription {
  private isLive = false;
  private wasCaughtUp = false;

  constructor(
    readonly call: Call,
    private readonly feed: Feed,
  ) {}

  async catchUp(): Promise<void> {
    this.isLive = false;
    while (!this.call.isOver) {
      const { frames, atEnd } = this.feed.next(BATCH_EVENTS);
      if (atEnd) {
        this.goLive();
        return;
      }
      if (frames.length > 0 && !this.call.sendNow(Buffer.concat(frames)))
        await this.call.writable();
      else await new Promise(setImmediate);
    }
  }

  /** Sends what was published if the reader has everything before it. */
  offer(events: readonly CommittedEvent[]): void {
    if (!this.isLive || this.call.isOver) return;
    if (events.reduce((sum, { frame }) => sum + frame.length, 0) > LIVE_BYTES) {
      this.fallBehind();
      return;
    }
    const frames = this.feed.live(events);
    if (frames.length > 0 && !this.call.sendNow(Buffer.concat(frames))) this.fallBehind();
  }

  private goLive(): void {
    this.isLive = true;
    if (this.wasCaughtUp) return;
    this.wasCaughtUp = true;
    this.call.sendNow(Buffer.concat([...this.feed.onCaughtUp(), caughtUp()]));
  }

  private fallBehind(): void {
    this.isLive = false;
    this.call
      .writable()
      .then(() => this.catchUp())
      .catch((error) => this.call.fail(error));
  }
}

/** Who is to be told of what is published. */
export class Subscriptions {
  private readonly toAll = new Set<Subscription>();
  private readonly toStream = new Map<string, Set<Subscription>>();
  private readonly byCall = new Map<Call, { subscription: Subscription; stream?: string }>();

  get size(): number {
    return this.byCall.size;
  }

  /** `stream` undefined: all streams. */
  open(call: Call, stream: string | undefined, feed: Feed): void {
    const subscription = new Subscription(call, feed);
    this.byCall.set(call, { subscription, stream });
    if (stream === undefined) this.toAll.add(subscription);
    else {
      const others = this.toStream.get(stream);
      if (others) others.add(subscription);
      else this.toStream.set(stream, new Set([subscription]));
    }
    call.send(confirmation(randomUUID()));
    subscription.catchUp().catch((error) => call.fail(error));
  }

  closed(call: Call): void {
    const entry = this.byCall.get(call);
    if (!entry) return;
    this.byCall.delete(call);
    const { subscription, stream } = entry;
    this.toAll.delete(subscription);
    if (stream === undefined) return;
    const others = this.toStream.get(stream);
    others?.delete(subscription);
    if (others?.size === 0) this.toStream.delete(stream);
  }

  publish(events: readonly CommittedEvent[]): void {
    for (const subscription of this.toAll) offered(subscription, events);
    if (this.toStream.size === 0) return;
    for (const [stream, ofStream] of byStream(events)) {
      for (const subscription of this.toStream.get(stream) ?? []) offered(subscription, ofStream);
    }
  }
}

const offered = (subscription: Subscription, events: readonly CommittedEvent[]): void =>
  subscription.call.guard(() => subscription.offer(events));

function byStream(events: readonly CommittedEvent[]): Map<string, CommittedEvent[]> {
  const groups = new Map<string, CommittedEvent[]>();
  for (const event of events) {
    const group = groups.get(event.stream);
    if (group) group.push(event);
    else groups.set(event.stream, [event]);
  }
  return groups;
}
