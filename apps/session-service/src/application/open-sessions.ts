import { gunzipSync, gzipSync } from 'node:zlib';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { eventIdOf, sessionStream } from '@vmux/events';
import type { Log } from './log';
import { keepOnlyTheLast, lastOf } from './streams';

/** No session's: a session id ends in four hex digits. */
const INDEX_STREAM = 'snapshot-open-sessions';
const INDEX_VERSION = 1;
const INDEX_TYPE = 'OpenSessionsIndexed';
const MAX_INDEX_BYTES = 900 * 1024;
const PREFIX = sessionStream('');
const ENDINGS = new Set(['SessionStopped', 'SessionFailed', 'SessionDeleted']);
const KEEP_EVERY_EVENTS = 10_000;

/** With the event itself unless it went by before this process had caught up. */
export type OnChange = (
  sessionId: string,
  revision: number,
  over: boolean,
  event: RecordedEvent | null,
) => void;

/**
 * The sessions that something may be owed to, followed live over all streams. Where it stands is kept
 * in the store, so that a start does not read every history; without that it reads them all again.
 */
export class OpenSessions {
  private readonly ids = new Set<string>();
  private position: bigint | undefined;
  private keptPosition: bigint | undefined;
  private sinceKept = 0;
  private caughtUp = false;
  private readonly overBefore = new Map<string, number>();

  constructor(
    private readonly store: EventStore,
    private readonly log: Log,
    private readonly onChange: OnChange,
  ) {}

  get size(): number {
    return this.ids.size;
  }

  list(): readonly string[] {
    return [...this.ids];
  }

  /** Nothing is owed to it any more; its next event opens it again. */
  settle(sessionId: string): void {
    this.ids.delete(sessionId);
  }

  /** Returns when the signal aborts. */
  async follow(signal: AbortSignal, whenCaughtUp: () => void): Promise<void> {
    await this.restore();
    const source = { prefixes: [PREFIX], afterPosition: this.position };
    for await (const item of this.store.subscribe(source, signal)) {
      if (item.kind === 'event') await this.take(item.event);
      if (item.kind === 'checkpoint') this.position = item.position;
      if (item.kind === 'caughtUp' && !this.caughtUp) {
        this.caughtUp = true;
        for (const [sessionId, revision] of this.overBefore)
          this.onChange(sessionId, revision, true, null);
        this.overBefore.clear();
        whenCaughtUp();
      }
    }
  }

  /** Keeps the index if anything happened since it was last kept. */
  async keep(): Promise<void> {
    const { position } = this;
    if (position === undefined || position === this.keptPosition) return;
    const data = gzipSync(JSON.stringify([...this.ids]));
    if (data.length > MAX_INDEX_BYTES) {
      this.log.warn({ sessions: this.ids.size }, 'too many open sessions to index');
      return;
    }
    await keepOnlyTheLast(this.store, INDEX_STREAM);
    await this.store.append(INDEX_STREAM, 'any', [
      {
        id: eventIdOf(INDEX_STREAM, 0, `${position}-${this.ids.size}`, Date.now()),
        type: INDEX_TYPE,
        data,
        metadata: { indexVersion: INDEX_VERSION, position: String(position) },
      },
    ]);
    this.keptPosition = position;
    this.sinceKept = 0;
  }

  private async take(event: RecordedEvent): Promise<void> {
    this.position = event.position;
    const sessionId = event.stream.slice(PREFIX.length);
    this.ids.add(sessionId);
    const over = ENDINGS.has(event.type);
    // While old histories go by, what is over is looked at once, at the end.
    if (this.caughtUp) this.onChange(sessionId, event.revision, over, event);
    else if (over) this.overBefore.set(sessionId, event.revision);
    this.sinceKept += 1;
    if (this.sinceKept >= KEEP_EVERY_EVENTS) await this.keep();
  }

  private async restore(): Promise<void> {
    const last = await lastOf(this.store, INDEX_STREAM);
    if (!last || last.type !== INDEX_TYPE || !Buffer.isBuffer(last.data)) return;
    const { indexVersion, position } = last.metadata;
    if (indexVersion !== INDEX_VERSION || typeof position !== 'string') return;
    const ids = JSON.parse(gunzipSync(last.data).toString('utf8')) as string[];
    for (const id of ids) this.ids.add(id);
    this.position = BigInt(position);
    this.keptPosition = this.position;
  }
}
