import { resumingEvents } from './resuming';
import type { HistoryEvent } from './types';
import type { CallOptions, Vmux } from './vmux';

export interface HistoryOptions extends CallOptions {
  /** The first revision; 0 without it. */
  readonly from?: number;
  /** Go on with what happens, until the session is deleted. */
  readonly follow?: boolean;
}

/** What happened to a session, each event once and in order, over cut connections. */
export async function* historyEvents(
  vmux: Vmux,
  sessionId: string,
  { from = 0, follow = false, signal }: HistoryOptions = {},
): AsyncGenerator<HistoryEvent> {
  const path = `/v1/sessions/${encodeURIComponent(sessionId)}/events`;
  for await (const { event, data } of resumingEvents(vmux, path, {
    query: { from, follow },
    signal,
  }))
    if (event === 'fact') yield data as HistoryEvent;
}
