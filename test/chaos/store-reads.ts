import type { EventStore, RecordedEvent } from '@vmux/event-store';

/** In order; none of a stream that never was: a session that wrote nothing has no log. */
export async function* eventsOf(store: EventStore, stream: string): AsyncGenerator<RecordedEvent> {
  try {
    yield* store.read(stream);
  } catch (fault) {
    if (!(fault instanceof Error && fault.name === 'StreamNotFound')) throw fault;
  }
}
