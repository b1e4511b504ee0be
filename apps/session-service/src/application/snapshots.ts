import { gunzipSync, gzipSync } from 'node:zlib';
import { type EventStore, StreamNotFound } from '@vmux/event-store';
import { eventIdOf, snapshotStream } from '@vmux/events';
import { FOLD_VERSION, type Session } from '../domain/state';

export const SNAPSHOT_EVERY = 256;
const MAX_SNAPSHOT_BYTES = 900 * 1024;
const TYPE = 'SessionFolded';

export interface Snapshot {
  readonly session: Session;
  /** Of the last event in it. */
  readonly position: bigint;
}

/** Folded states, kept so that a long history need not be read again. A cache: anything odd is ignored. */
export class Snapshots {
  constructor(private readonly store: EventStore) {}

  async find(sessionId: string): Promise<Snapshot | null> {
    const last = await lastOf(this.store, snapshotStream(sessionId));
    if (!last || last.type !== TYPE || !Buffer.isBuffer(last.data)) return null;
    const { foldVersion, position, revision } = last.metadata;
    if (foldVersion !== FOLD_VERSION || typeof position !== 'string') return null;
    const session = JSON.parse(gunzipSync(last.data).toString('utf8')) as Session;
    return session.revision === revision ? { session, position: BigInt(position) } : null;
  }

  /** False when the state is too large to keep. */
  async keep(sessionId: string, { session, position }: Snapshot): Promise<boolean> {
    const data = gzipSync(JSON.stringify(session), { level: 1 });
    if (data.length > MAX_SNAPSHOT_BYTES) return false;
    const stream = snapshotStream(sessionId);
    await keepOnlyTheLast(this.store, stream);
    await this.store.append(stream, 'any', [
      {
        id: eventIdOf(stream, session.revision, `fold-${FOLD_VERSION}`, 0),
        type: TYPE,
        data,
        metadata: {
          foldVersion: FOLD_VERSION,
          revision: session.revision,
          position: String(position),
        },
      },
    ]);
    return true;
  }
}

/** Null for a stream without events. */
export async function lastOf(store: EventStore, stream: string) {
  try {
    for await (const event of store.read(stream, { direction: 'backwards', limit: 1 }))
      return event;
  } catch (fault) {
    if (!(fault instanceof StreamNotFound)) throw fault;
  }
  return null;
}

/** Says so in the stream's metadata, once. */
export async function keepOnlyTheLast(store: EventStore, stream: string): Promise<void> {
  const metadataStream = `$$${stream}`;
  if (await lastOf(store, metadataStream)) return;
  await store.append(metadataStream, 'any', [
    {
      id: eventIdOf(metadataStream, 0, 'keep only the last', 0),
      type: '$metadata',
      data: { $maxCount: 1 },
    },
  ]);
}
