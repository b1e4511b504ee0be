import { randomUUID } from 'node:crypto';
import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { eventIdOf } from '@vmux/events';

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

/** Drops what lies before the revision. */
export async function truncateStream(
  store: EventStore,
  stream: string,
  revision: number,
): Promise<void> {
  await store.append(`$$${stream}`, 'any', [
    { id: randomUUID(), type: '$metadata', data: { $tb: revision } },
  ]);
}
