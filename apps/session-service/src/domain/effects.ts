import type { SessionEventData, SessionEventType } from '@vmux/events';
import { type Existing, MAX_RETIRED, type Retired } from './state';

/** What an event changes in a session that exists. */
export type Effect<T extends SessionEventType> = (
  session: Existing,
  data: SessionEventData<T>,
  revision: number,
) => Existing;
export type Effects<T extends SessionEventType> = { readonly [K in T]: Effect<K> };

export const active = (session: Existing, at: number): Existing => ({
  ...session,
  lastActivityAt: Math.max(session.lastActivityAt, at),
});

/** Its runner is told to destroy it. A runner that never answers is forgotten in the end. */
export const retire = (session: Existing, { epoch, instance, runnerId }: Retired): Existing => ({
  ...session,
  retired: [...session.retired, { epoch, instance, runnerId }].slice(-MAX_RETIRED),
});
