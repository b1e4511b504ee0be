import type { Filter, From, ReadRequest } from '../protocol/read-request';
import { checkpoint } from '../protocol/read-responses';
import { streamDeleted } from '../protocol/status';
import type { EventReader } from '../storage/reader';
import { ALL } from '../storage/stream-index';
import type { CommittedEvent } from '../storage/writer';
import { type Matcher, matcherOf } from './filter';

/** An ordered sequence of frames that knows how far it has come. */
export interface Feed {
  /** The next frames from the store. Empty with `atEnd` when there is nothing more for now. */
  next(limit: number): { readonly frames: Uint8Array[]; readonly atEnd: boolean };
  /** The frames of events just published, for a feed that is at its end. */
  live(events: readonly CommittedEvent[]): Uint8Array[];
  /** What a subscriber is told on having caught up, besides that. */
  onCaughtUp(): Uint8Array[];
}

export function feedOf(request: ReadRequest, reader: EventReader): Feed {
  if (request.stream !== undefined) return new StreamFeed(request, request.stream, reader);
  return request.filter
    ? new FilteredFeed(request, request.filter, reader)
    : new AllFeed(request, reader);
}

class StreamFeed implements Feed {
  private cursor: number;
  private readonly step: number;

  constructor(
    private readonly request: ReadRequest,
    private readonly name: string,
    private readonly reader: EventReader,
  ) {
    this.step = request.direction === 'forwards' ? 1 : -1;
    this.cursor = this.first(request.from);
  }

  next(limit: number) {
    const stream = this.reader.findStream(this.name);
    if (stream?.tombstoned) throw streamDeleted(this.name);
    if (!stream) return { frames: [], atEnd: true };
    const batch = this.reader.readStream(stream, this.request.direction, this.cursor, limit);
    const last = batch.at(-1);
    if (last) this.cursor = last.revision + this.step;
    return { frames: batch.map(({ frame }) => frame), atEnd: batch.length === 0 };
  }

  live(events: readonly CommittedEvent[]): Uint8Array[] {
    const fresh = events.filter(({ revision }) => revision >= this.cursor);
    const last = fresh.at(-1);
    if (last?.type === '$streamDeleted') throw streamDeleted(this.name);
    if (last) this.cursor = last.revision + 1;
    return fresh.map(({ frame }) => frame);
  }

  onCaughtUp(): Uint8Array[] {
    return [];
  }

  private first(from: From): number {
    const { direction, limit } = this.request;
    const isSubscription = limit === undefined;
    if (typeof from === 'number') return isSubscription ? from + 1 : from;
    if (from === 'start') return 0;
    if (!isSubscription && direction === 'backwards') return ALL;
    return (this.reader.findStream(this.name)?.head ?? -1) + 1;
  }
}

/** All events in order of position. Backwards, a position excludes the event that stands at it. */
class AllFeed implements Feed {
  protected cursor: number;
  private readonly step: number;

  constructor(
    protected readonly request: ReadRequest,
    protected readonly reader: EventReader,
  ) {
    const { direction, limit, from } = request;
    this.step = direction === 'forwards' ? 1 : -1;
    if (from === 'start') this.cursor = 0;
    else if (from === 'end') this.cursor = direction === 'backwards' ? ALL : this.endPosition();
    else this.cursor = direction === 'backwards' || limit === undefined ? from + this.step : from;
  }

  next(limit: number): { frames: Uint8Array[]; atEnd: boolean } {
    const batch = this.reader.readAll(this.request.direction, this.cursor, limit);
    const last = batch.at(-1);
    if (last) this.advance(last.position);
    return { frames: batch.map(({ frame }) => frame), atEnd: batch.length === 0 };
  }

  live(events: readonly CommittedEvent[]): Uint8Array[] {
    const fresh = events.filter(({ position }) => position >= this.cursor);
    const last = fresh.at(-1);
    if (last) this.advance(last.position);
    return fresh.map(({ frame }) => frame);
  }

  onCaughtUp(): Uint8Array[] {
    return [];
  }

  protected advance(position: number): void {
    this.cursor = position + this.step;
  }

  private endPosition(): number {
    return this.reader.lastPosition() + 1;
  }
}

const HEADERS = 512;
const FRAME_BYTES = 256 * 1024;

/** Looks at every event's names and fetches the bytes of those that the filter wants. */
class FilteredFeed extends AllFeed {
  private readonly matches: Matcher;
  private considered = 0;
  private lastConsidered = 0;

  constructor(
    request: ReadRequest,
    private readonly filter: Filter,
    reader: EventReader,
  ) {
    super(request, reader);
    this.matches = matcherOf(filter);
  }

  override next(limit: number): { frames: Uint8Array[]; atEnd: boolean } {
    const headers = this.reader.readHeaders(this.request.direction, this.cursor, HEADERS);
    const wanted = this.matches(headers);
    const frames: Uint8Array[] = [];
    let events = 0;
    let bytes = 0;
    for (const [at, { position }] of headers.entries()) {
      if (events >= limit || bytes >= FRAME_BYTES) break;
      const frame = wanted[at] ? this.reader.frame(position) : undefined;
      if (frame) {
        frames.push(frame);
        events++;
        bytes += frame.length;
      }
      this.consider(position, frames);
    }
    return { frames, atEnd: headers.length === 0 };
  }

  override live(events: readonly CommittedEvent[]): Uint8Array[] {
    const fresh = events.filter(({ position }) => position >= this.cursor);
    const wanted = this.matches(fresh);
    const frames: Uint8Array[] = [];
    for (const [at, { position, frame }] of fresh.entries()) {
      if (wanted[at]) frames.push(frame);
      this.consider(position, frames);
    }
    return frames;
  }

  override onCaughtUp(): Uint8Array[] {
    return this.lastConsidered > 0 ? [checkpoint(this.lastConsidered)] : [];
  }

  private consider(position: number, frames: Uint8Array[]): void {
    this.advance(position);
    this.lastConsidered = position;
    this.considered++;
    const isSubscription = this.request.limit === undefined;
    if (isSubscription && this.considered % this.filter.checkpointEvery === 0) {
      frames.push(checkpoint(position));
    }
  }
}
