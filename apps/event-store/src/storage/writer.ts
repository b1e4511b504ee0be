import { randomUUID } from 'node:crypto';
import type { ExpectedRevision, ProposedEvent } from '../protocol/proposed-event';
import { decodeEventData, encodeEventFrame } from '../protocol/recorded-event';
import { RecentIds } from './recent-ids';
import type { Database, Statement } from './sqlite';
import {
  ALL,
  firstVisible,
  isMetadataStream,
  isSoftDeleted,
  StreamIndex,
  type StreamState,
} from './stream-index';
import { parseStreamLimits, withTruncateBefore } from './stream-metadata';

export interface CommittedEvent {
  readonly position: number;
  readonly stream: string;
  readonly revision: number;
  readonly type: string;
  readonly frame: Buffer;
}

export type WriteRequest =
  | {
      readonly kind: 'append';
      readonly stream: string;
      readonly expected: ExpectedRevision;
      readonly events: readonly ProposedEvent[];
    }
  | {
      readonly kind: 'delete' | 'tombstone';
      readonly stream: string;
      readonly expected: ExpectedRevision;
    };

export type WriteResult =
  | {
      readonly kind: 'written';
      /** Of the stream's last event; undefined for a stream without events. */
      readonly revision: number | undefined;
      readonly position: number | undefined;
    }
  | { readonly kind: 'wrong_revision'; readonly actual: number | 'no_stream' }
  | { readonly kind: 'stream_deleted' };

const REMEMBERED_IDS = 50_000;
const IDS_LOADED_AT_START = 10_000;
const TOMBSTONE_REVISION = 9223372036854775807n;
const METADATA_TYPE = '$metadata';
const NO_BYTES = Buffer.alloc(0);

/**
 * Decides and inserts, within a transaction that the committer opens and ends. What it holds in memory
 * runs ahead of the database only inside that transaction; `reset` follows a rollback.
 */
export class Writer {
  private readonly index: StreamIndex;
  private readonly recent = new RecentIds(REMEMBERED_IDS);
  private nextPosition = 1;
  private written: CommittedEvent[] = [];
  private readonly insert: Statement;
  private readonly selectPlaces: Statement;
  private readonly selectLastFrame: Statement;
  private readonly selectTail: Statement;
  private readonly selectRecent: Statement;
  private readonly trim: Statement;

  constructor(database: Database) {
    this.index = new StreamIndex(database);
    this.insert = database.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)');
    this.selectPlaces = database.prepare(
      'SELECT id, position FROM events WHERE stream = ? AND revision >= ? ORDER BY revision LIMIT ?',
    );
    this.selectLastFrame = database.prepare(
      'SELECT frame FROM events WHERE stream = ? ORDER BY revision DESC LIMIT 1',
    );
    this.selectTail = database.prepare(
      'SELECT position + length(frame) FROM events ORDER BY position DESC LIMIT 1',
    );
    this.selectRecent = database.prepare(
      'SELECT stream, id, revision, position FROM events ORDER BY position DESC LIMIT ?',
    );
    this.trim = database.prepare(
      `DELETE FROM events WHERE position IN (
         SELECT position FROM events WHERE stream = ? AND revision < ? ORDER BY revision LIMIT ?)`,
    );
    this.reset();
  }

  /** Rebuilds what is held in memory from the database. */
  reset(): void {
    this.written = [];
    this.index.forgetAll();
    this.recent.clear();
    this.nextPosition = Number(this.selectTail.get()?.[0] ?? 1);
    for (const row of this.selectRecent.all(IDS_LOADED_AT_START).reverse()) {
      this.recent.add(Number(row[0]), String(row[1]), {
        revision: Number(row[2]),
        position: Number(row[3]),
      });
    }
  }

  /** The events inserted since the last call. */
  takeWritten(): CommittedEvent[] {
    const written = this.written;
    this.written = [];
    return written;
  }

  write(request: WriteRequest): WriteResult {
    const stream = this.index.find(request.stream);
    if (stream?.tombstoned) return { kind: 'stream_deleted' };
    if (request.kind === 'append') {
      return this.append(request.stream, stream, request.expected, request.events);
    }
    if (!meets(request.expected, stream)) return wrongRevision(stream);
    return request.kind === 'delete' ? this.delete(request.stream) : this.tombstone(request.stream);
  }

  private append(
    name: string,
    known: StreamState | undefined,
    expected: ExpectedRevision,
    events: readonly ProposedEvent[],
  ): WriteResult {
    const repeated = known && this.repeated(known, expected, events);
    if (repeated) return repeated;
    if (!meets(expected, known)) return wrongRevision(known);
    if (events.length === 0) {
      const revision = known && known.head >= 0 ? known.head : undefined;
      return { kind: 'written', revision, position: undefined };
    }
    const stream = known ?? this.index.findOrCreate(name);
    if (isSoftDeleted(stream)) this.truncate(stream, stream.head + 1);
    for (const event of events) this.record(stream, event);
    if (isMetadataStream(name)) this.applyMetadata(name.slice(2), events);
    if (stream.maxCount !== null) this.trimOldest(stream, events.length);
    return { kind: 'written', revision: stream.head, position: this.written.at(-1)?.position };
  }

  /**
   * An append that is already there, by the ids of its events, succeeds again without being stored
   * again. With an exact revision the ids are compared at the revisions that it would have written; with
   * `any` and `stream_exists` the first id is looked up among the recent ones.
   */
  private repeated(
    stream: StreamState,
    expected: ExpectedRevision,
    events: readonly ProposedEvent[],
  ): WriteResult | undefined {
    const first = events[0];
    if (!first) return undefined;
    let revision: number;
    if (typeof expected === 'number') revision = expected + 1;
    else if (expected === 'no_stream') revision = isSoftDeleted(stream) ? 0 : stream.truncateBefore;
    else {
      const place = this.recent.find(stream.id, first.id);
      if (!place) return undefined;
      revision = place.revision;
    }
    const last = revision + events.length - 1;
    if (last > stream.head || isSoftDeleted(stream)) return undefined;
    const places = this.selectPlaces.all(stream.id, revision, events.length);
    if (places.length !== events.length) return undefined;
    if (!events.every((event, at) => places[at]?.[0] === event.id)) return undefined;
    return { kind: 'written', revision: last, position: Number(places.at(-1)?.[1]) };
  }

  private record(stream: StreamState, event: ProposedEvent, shownRevision?: bigint): void {
    const position = this.nextPosition;
    const revision = stream.head + 1;
    const createdMs = Date.now();
    const frame = encodeEventFrame(event, {
      stream: stream.nameBytes,
      revision: shownRevision ?? revision,
      position,
      createdMs,
    });
    this.insert.run(position, stream.id, revision, event.id, event.type, createdMs, frame);
    stream.head = revision;
    // Positions grow by what an event takes, as offsets in a log do: nobody can count on gapless ones.
    this.nextPosition = position + frame.length;
    this.recent.add(stream.id, event.id, { revision, position });
    this.written.push({ position, stream: stream.name, revision, type: event.type, frame });
  }

  private applyMetadata(name: string, events: readonly ProposedEvent[]): void {
    const last = events.findLast(({ type }) => type === METADATA_TYPE);
    if (!last) return;
    const stream = this.index.findOrCreate(name);
    Object.assign(stream, parseStreamLimits(last.data));
    if (isMetadataStream(name)) stream.maxCount = 1;
    this.index.save(stream);
  }

  /** Soft delete: the events are gone for readers, the name and its numbering live on. */
  private delete(name: string): WriteResult {
    return this.truncate(this.index.findOrCreate(name), ALL);
  }

  private truncate(stream: StreamState, truncateBefore: number): WriteResult {
    const metadata = this.index.findOrCreate(`$$${stream.name}`);
    const frame = this.selectLastFrame.get(metadata.id)?.[0];
    const data = frame instanceof Uint8Array ? decodeEventData(frame) : undefined;
    return this.append(metadata.name, metadata, 'any', [
      proposed(METADATA_TYPE, withTruncateBefore(data, truncateBefore)),
    ]);
  }

  /** Hard delete: the name can never be used again. */
  private tombstone(name: string): WriteResult {
    const stream = this.index.findOrCreate(name);
    this.record(stream, proposed('$streamDeleted', NO_BYTES), TOMBSTONE_REVISION);
    stream.tombstoned = true;
    stream.truncateBefore = stream.head;
    this.index.save(stream);
    return { kind: 'written', revision: stream.head, position: this.written.at(-1)?.position };
  }

  private trimOldest(stream: StreamState, added: number): void {
    this.trim.run(stream.id, Math.min(firstVisible(stream), stream.head), added + 16);
  }
}

const proposed = (type: string, data: Buffer): ProposedEvent => ({
  id: randomUUID(),
  type,
  contentType: 'application/json',
  data,
  customMetadata: NO_BYTES,
});

function meets(expected: ExpectedRevision, stream: StreamState | undefined): boolean {
  const head = stream?.head ?? -1;
  const exists = head >= 0 && !(stream && isSoftDeleted(stream));
  if (expected === 'any') return true;
  if (expected === 'no_stream') return !exists;
  if (expected === 'stream_exists') return exists;
  return head >= 0 && expected === head;
}

const wrongRevision = (stream: StreamState | undefined): WriteResult => ({
  kind: 'wrong_revision',
  actual: !stream || stream.head < 0 || isSoftDeleted(stream) ? 'no_stream' : stream.head,
});
