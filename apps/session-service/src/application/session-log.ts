import { type EventStore, type JsonObject, StreamNotFound } from '@vmux/event-store';
import {
  decodeLogEvent,
  encodeLogEvent,
  eventIdOf,
  LOG_MARK_EVERY,
  type LogEvent,
  logStream,
  UnknownEvent,
} from '@vmux/events';
import { EMPTY_LOG, evolveLog, type LogState } from '../domain/log-state';
import { Lru } from './lru';
import { lastOf, truncateStream } from './streams';

/** A session's log, folded from its last mark on. What is cached is a guess that the append confirms. */
export class SessionLog {
  private readonly cache: Lru<LogState>;

  constructor(
    private readonly store: EventStore,
    cacheBytes: number,
  ) {
    this.cache = new Lru(cacheBytes, ({ streams }) => 2000 + Object.keys(streams).length * 200);
  }

  /** What this process last knew, without asking the store. */
  guess(sessionId: string): LogState | undefined {
    return this.cache.get(sessionId);
  }

  /** The head of the log, now. */
  async load(sessionId: string): Promise<LogState> {
    const known = this.cache.get(sessionId);
    const log = known
      ? await this.fold(sessionId, known, known.revision + 1)
      : await this.fold(sessionId, EMPTY_LOG, await this.lastMark(sessionId));
    this.remember(sessionId, log);
    return log;
  }

  /** Throws `WrongRevision` when the guess was wrong. `write` names this attempt, so that it can be repeated. */
  async append(
    sessionId: string,
    before: LogState,
    events: readonly LogEvent[],
    write: string,
  ): Promise<LogState> {
    const stream = logStream(sessionId);
    await this.store.append(
      stream,
      before.revision === -1 ? 'none' : before.revision,
      events.map((event, index) => {
        const { type, data, metadata } = encodeLogEvent(event);
        return {
          id: eventIdOf(stream, before.revision + 1 + index, write, index),
          type,
          data: data instanceof Uint8Array ? data : (data as unknown as JsonObject),
          metadata: metadata as JsonObject,
        };
      }),
    );
    const after = events.reduce(
      (log, event, index) => evolveLog(log, { event, revision: before.revision + 1 + index }),
      before,
    );
    this.remember(sessionId, after);
    return after;
  }

  /** Drops what lies before the revision. */
  async truncate(sessionId: string, revision: number): Promise<void> {
    await truncateStream(this.store, logStream(sessionId), revision);
  }

  private remember(sessionId: string, log: LogState): void {
    const known = this.cache.get(sessionId);
    if (!known || known.revision <= log.revision) this.cache.set(sessionId, log);
  }

  /** A mark stands at every revision divisible by 64. */
  private async lastMark(sessionId: string): Promise<number> {
    const last = await lastOf(this.store, logStream(sessionId));
    return last ? Math.floor(last.revision / LOG_MARK_EVERY) * LOG_MARK_EVERY : 0;
  }

  private async fold(sessionId: string, start: LogState, from: number): Promise<LogState> {
    let log = start;
    try {
      for await (const stored of this.store.read(logStream(sessionId), { from })) {
        const event = decodeLogEvent(stored);
        if (!event) throw new UnknownEvent(stored.type, 1);
        log = evolveLog(log, { event, revision: stored.revision });
      }
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    return log;
  }
}
