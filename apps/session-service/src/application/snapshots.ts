import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { eventIdOf, snapshotStream } from '@vmux/events';
import { exists, FOLD_VERSION, type Session } from '../domain/state';
import { KeySegments } from './key-segments';
import { keepOnlyTheLast, lastOf } from './streams';

export const SNAPSHOT_EVERY = 256;
const MAX_PART_BYTES = 512 * 1024;
const MAX_PARTS = 32;
const TYPE = 'SessionFolded';

const compressed = promisify(gzip);
const expanded = promisify(gunzip);

export interface Snapshot {
  readonly session: Session;
  /** Of the last event in it. */
  readonly position: bigint;
}

/**
 * Folded states, kept so that a long history need not be read again. One event as a rule, a large state
 * takes several; of the keys that it remembers only the newest are in it. A cache: anything odd is ignored.
 */
export class Snapshots {
  private readonly segments: KeySegments;

  constructor(private readonly store: EventStore) {
    this.segments = new KeySegments(store);
  }

  async find(sessionId: string): Promise<Snapshot | null> {
    const parts = await this.lastParts(snapshotStream(sessionId));
    const [first] = parts;
    if (!first) return null;
    const { position, revision } = first.metadata;
    if (typeof position !== 'string') return null;
    const data = Buffer.concat(parts.map((part) => part.data as Buffer));
    const kept = JSON.parse((await expanded(data)).toString('utf8')) as Session;
    const session = await this.withSegments(sessionId, kept, first.metadata.segments);
    if (!session || session.revision !== revision) return null;
    return { session, position: BigInt(position) };
  }

  /** False when the state is too large to keep. */
  async keep(sessionId: string, { session, position }: Snapshot): Promise<boolean> {
    if (exists(session)) await this.segments.keep(sessionId, session.keys);
    const data = await compressed(JSON.stringify(withoutSegments(session)), { level: 1 });
    const parts = Math.ceil(data.length / MAX_PART_BYTES);
    if (parts > MAX_PARTS) return false;
    const stream = snapshotStream(sessionId);
    await keepOnlyTheLast(this.store, stream, parts);
    for (let part = 0; part < parts; part += 1)
      await this.store.append(stream, 'any', [
        {
          id: eventIdOf(stream, session.revision, `fold-${FOLD_VERSION}`, part),
          type: TYPE,
          data: data.subarray(part * MAX_PART_BYTES, (part + 1) * MAX_PART_BYTES),
          metadata: {
            foldVersion: FOLD_VERSION,
            revision: session.revision,
            position: String(position),
            segments: exists(session) ? session.keys.segments.length : 0,
            part,
            parts,
          },
        },
      ]);
    return true;
  }

  private async withSegments(
    sessionId: string,
    session: Session,
    count: unknown,
  ): Promise<Session | null> {
    if (!exists(session)) return session;
    if (typeof count !== 'number') return null;
    const segments = await this.segments.find(sessionId, session.keys.forgotten, count);
    return segments && { ...session, keys: { ...session.keys, segments } };
  }

  /** Those of the last snapshot, in order, or none when they are not all there. */
  private async lastParts(stream: string): Promise<readonly RecordedEvent[]> {
    const last = await lastOf(this.store, stream);
    const parts = last?.metadata.parts;
    if (!last || typeof parts !== 'number') return [];
    const found: RecordedEvent[] = [last];
    if (parts > 1)
      for await (const event of this.store.read(stream, {
        from: last.revision - 1,
        direction: 'backwards',
        limit: parts - 1,
      }))
        found.unshift(event);
    const whole = found.every(
      ({ type, data, metadata }, index) =>
        type === TYPE &&
        Buffer.isBuffer(data) &&
        metadata.foldVersion === FOLD_VERSION &&
        metadata.revision === last.metadata.revision &&
        metadata.part === index,
    );
    return whole && found.length === parts ? found : [];
  }
}

const withoutSegments = (session: Session): Session =>
  exists(session) ? { ...session, keys: { ...session.keys, segments: [] } } : session;
