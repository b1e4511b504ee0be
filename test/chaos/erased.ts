import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { EventStore } from '@vmux/event-store';
import { keysStream, logStream, sessionStream, snapshotStream, viewStream } from '@vmux/events';
import type { Cast } from '../support/cast';
import { EVENTS_COPY, heldAfterDeletion, OUTPUT_COPY } from './relay-check';
import { eventsOf } from './store-reads';

const DRAFT = /^\.[0-9a-f-]{36}$/;

/** What is left to be read of sessions that were deleted: a notice that they were, and nothing else. */
export async function notErased(
  cast: Cast,
  store: EventStore,
  sessions: readonly string[],
): Promise<string[]> {
  // Drafts that a killed process left were never a key.
  const keys = readdirSync(join(cast.dir, 'keys')).filter((name) => !DRAFT.test(name));
  const left: string[] = keys.map((name) => `the key ${name}`);
  for (const session of sessions) {
    const types: string[] = [];
    for await (const { type } of eventsOf(store, sessionStream(session))) types.push(type);
    if (types.join() !== 'SessionDeleted') left.push(`${session} holds ${types.slice(-3)}`);
    for (const streamOf of [logStream, snapshotStream, keysStream, viewStream])
      for await (const { type } of eventsOf(store, streamOf(session))) {
        left.push(`${streamOf(session)} holds ${type}`);
        break;
      }
  }
  for (const copy of [EVENTS_COPY, OUTPUT_COPY])
    left.push(...(await heldAfterDeletion(cast, copy)));
  return left.map((what) => `not erased: ${what}`);
}
