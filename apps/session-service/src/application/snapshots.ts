import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { eventIdOf, snapshotStream } from '@vmux/events';
import { FOLD_VERSION, type Session } from '../domain/state';

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
 * Folded states, kept so that a long history need not be read again. One event as a rule; a state that
 * remembers very many keys takes several. A cache: anything odd is ignored.
 */
export class Snapshots {
  constructor(private readonly store: EventStore) {}

  async find(sessionId: string): Promise<Snapshot | null> {
    const parts = await this.lastParts(snapshotStream(sessionId));
    const [first] = parts;
    if (!first) return null;
    const { position, revision } = first.metadata;
    if (typeof position !== 'string') return null;
    const data = Buffer.concat(parts.map((part) => part.data as Buffer));
    const session = JSON.parse((await expanded(data)).toString('utf8')) as Session;
    return session.revision === revision ? { session, position: BigInt(position) } : null;
  }

  /** False when the state is too large to keep. */
  async keep(sessionId: string, { session, position }: Snapshot): Promise<boolean> {
    const data = await compressed(JSON.stringify(session), { level: 1 });
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
            part,
            parts,
          },
        },
      ]);
    return true;
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

/** Null for a stream without events. */
export async function lastOf(store: EventStore, stream: string): Promise<RecordedEvent | null> {
  try {
    for await (const event of store.read(stream, { direction: 'backwards', limit: 1 }))
      return event;
  } catch (fault) {
    if (!(fault instanceof StreamNotFound)) throw fault;
  }
  return null;
}

/** Says in the stream's metadata how many of its events are kept, unless it says so already. */
export async function keepOnlyTheLast(store: EventStore, stream: string, count = 1): Promise<void> {
  const metadataStream = `$$${stream}`;
  const known = await lastOf(store, metadataStream);
  if (known && !Buffer.isBuffer(known.data) && known.data.$maxCount === count) return;
  await store.append(metadataStream, 'any', [
    {
      id: eventIdOf(metadataStream, (known?.revision ?? -1) + 1, 'keep the last', count),
      type: '$metadata',
      data: { $maxCount: count },
    },
  ]);
}
