import {
  type EventStore,
  type RecordedEvent,
  StreamNotFound,
  WrongRevision,
} from '@vmux/event-store';
import { eventIdOf, keysStream } from '@vmux/events';
import { type KeyMemory, RECORD_CHARS, type Segment, segmentOf } from '../domain/key-memory';
import { keepOnlyTheLast, lastOf } from './streams';

const TYPE = 'KeysRemembered';
/** Of the records in a segment. */
const VERSION = 1;
/** More than a session ever remembers at once. */
const MAX_SEGMENTS = 600;
const MAX_ATTEMPTS = 3;

/**
 * The segments of a session's memory of keys, each kept once: they never change, so that a snapshot costs
 * what is new and not what is remembered. Part of that cache: what cannot be found costs a full replay.
 */
export class KeySegments {
  private readonly kept = new WeakSet<Segment>();

  constructor(private readonly store: EventStore) {}

  async keep(sessionId: string, memory: KeyMemory): Promise<void> {
    if (memory.segments.every((segment) => this.kept.has(segment))) return;
    const stream = keysStream(sessionId);
    await keepOnlyTheLast(this.store, stream, MAX_SEGMENTS);
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.appendMissing(stream, memory);
        break;
      } catch (fault) {
        // Another session service keeps the same ones.
        if (!(fault instanceof WrongRevision) || attempt === MAX_ATTEMPTS) throw fault;
      }
    }
    for (const segment of memory.segments) this.kept.add(segment);
  }

  /** Null when they are not all there. */
  async find(
    sessionId: string,
    forgotten: number,
    count: number,
  ): Promise<readonly Segment[] | null> {
    if (count === 0) return [];
    const found = new Map<number, Segment>();
    try {
      const events = this.store.read(keysStream(sessionId), { direction: 'backwards' });
      for await (const event of events) {
        const number = numberOf(event);
        if (number === null || number < forgotten) return null;
        const segment = number < forgotten + count ? segmentIn(event) : null;
        if (segment) found.set(number, segment);
        if (found.size === count) break;
      }
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    if (found.size < count) return null;
    const segments = [...found].sort(([one], [other]) => one - other).map(([, each]) => each);
    for (const segment of segments) this.kept.add(segment);
    return segments;
  }

  private async appendMissing(stream: string, { segments, forgotten }: KeyMemory): Promise<void> {
    const last = await lastOf(this.store, stream);
    let expected = last?.revision ?? -1;
    const present = last ? (numberOf(last) ?? -1) : -1;
    for (const [index, { records, until }] of segments.entries()) {
      const number = forgotten + index;
      if (number <= present) continue;
      const event = {
        id: eventIdOf(stream, number, `keys-${VERSION}`, expected + 1),
        type: TYPE,
        data: Buffer.from(records, 'latin1'),
        metadata: { version: VERSION, number, until },
      };
      // A stream that is there and has no event left cannot be told from none.
      const appended = await this.store.append(stream, expected < 0 ? 'any' : expected, [event]);
      expected = appended.revision;
    }
  }
}

function numberOf({ type, metadata }: RecordedEvent): number | null {
  const { version, number } = metadata;
  return type === TYPE && version === VERSION && typeof number === 'number' ? number : null;
}

function segmentIn({ data, metadata: { until } }: RecordedEvent): Segment | null {
  if (!Buffer.isBuffer(data) || typeof until !== 'number') return null;
  return data.length % RECORD_CHARS === 0 ? segmentOf(data.toString('latin1'), until) : null;
}
