import { createHash } from 'node:crypto';
import {
  type Appended,
  type EventStore,
  type JsonObject,
  type RecordedEvent,
  StreamNotFound,
} from '@vmux/event-store';
import {
  decodeForDeciding,
  type EventMetadata,
  encode,
  eventIdOf,
  Malformed,
  type SessionEvent,
  sessionStream,
  UnknownEvent,
} from '@vmux/events';
import { evolve } from '../domain/evolve';
import { bytesOf } from '../domain/key-memory';
import { exists, type Session, UNBORN } from '../domain/state';
import type { Log } from './log';
import { Lru } from './lru';
import { SNAPSHOT_EVERY, type Snapshots } from './snapshots';

/** A session's state as of a revision of its stream. */
export interface Folded {
  readonly session: Session;
  /** Of the last event in it, in the whole store. */
  readonly position: bigint;
}

const NOTHING: Folded = { session: UNBORN, position: 0n };

export type Cause = Omit<EventMetadata, 'version'>;

/** Events are plain data by construction; their types say more than JSON's. */
const plain = ({ type, data, metadata }: ReturnType<typeof encode>) => ({
  type,
  data: data as unknown as JsonObject,
  metadata: metadata as unknown as JsonObject,
});

/** About how many bytes of memory a state takes: what it remembers most of are keys, execs and ports. */
function weightOf(session: Session): number {
  if (!exists(session)) return 500;
  const { keys, execs, ended, checkpoints, ports } = session;
  const endedCount = ended.older.length + ended.newer.length;
  const smallParts = endedCount + checkpoints.length + Object.keys(ports).length;
  return 20_000 + bytesOf(keys) + Object.keys(execs).length * 2000 + smallParts * 500;
}

/**
 * Of one append: the same events under the same key have the same ids, so that it can be repeated. Other
 * events, decided elsewhere under the same key, must not pass for them.
 */
const nameOf = (key: string, events: readonly SessionEvent[]): string =>
  `${key}:${createHash('sha256').update(JSON.stringify(events)).digest('base64url')}`;

/** A session's stream, folded. What is cached is only ever a guess that the append confirms. */
export class SessionHistory {
  private readonly cache: Lru<Folded>;

  constructor(
    private readonly store: EventStore,
    private readonly snapshots: Snapshots,
    private readonly log: Log,
    cacheBytes: number,
  ) {
    this.cache = new Lru(cacheBytes, ({ session }) => weightOf(session));
  }

  readonly none = NOTHING;

  /** What this process last knew, without asking the store. */
  guess(sessionId: string): Folded | undefined {
    return this.cache.get(sessionId);
  }

  /**
   * An event that came by. Whoever knows the state just before it need not ask the store for it: with
   * several services most guesses would otherwise be wrong, and an event comes by before the append that
   * wrote it is answered.
   */
  observe(sessionId: string, stored: RecordedEvent): void {
    const known = this.cache.get(sessionId);
    if (known?.session.revision !== stored.revision - 1) return;
    try {
      const session = evolve(known.session, decodeForDeciding(stored));
      this.cache.set(sessionId, { session, position: stored.position });
    } catch (fault) {
      // Whoever decides meets it again, and says so.
      if (!(fault instanceof UnknownEvent) && !(fault instanceof Malformed)) throw fault;
    }
  }

  /** The head of the stream, now. */
  async load(sessionId: string): Promise<Folded> {
    const start = this.cache.get(sessionId) ?? (await this.snapshots.find(sessionId)) ?? NOTHING;
    return this.catchUp(sessionId, start);
  }

  /** Every event and no cache: what everything else has to be equal to. */
  replay(sessionId: string): Promise<Folded> {
    return this.fold(sessionId, NOTHING);
  }

  /** Throws `WrongRevision` when the guess was wrong. */
  async append(
    sessionId: string,
    before: Folded,
    events: readonly SessionEvent[],
    cause: Cause,
    key: string,
  ): Promise<Folded> {
    const stream = sessionStream(sessionId);
    const { revision } = before.session;
    const name = nameOf(key, events);
    const appended: Appended = await this.store.append(
      stream,
      revision === -1 ? 'none' : revision,
      events.map((event, index) => ({
        id: eventIdOf(stream, revision + 1, name, index),
        ...plain(encode(event, cause)),
      })),
    );
    const observed = this.cache.get(sessionId);
    const session =
      observed?.session.revision === appended.revision
        ? observed.session
        : this.evolved(before.session, events, cause);
    const after = { session, position: appended.position };
    this.remember(sessionId, before, after);
    return after;
  }

  private evolved(before: Session, events: readonly SessionEvent[], cause: Cause): Session {
    return events.reduce<Session>(
      (state, event, index) =>
        evolve(state, {
          event,
          revision: before.revision + 1 + index,
          metadata: { ...cause, version: event.version },
        }),
      before,
    );
  }

  /** What a key caused, from its first event on; none when they are gone. */
  async eventsUnder(
    sessionId: string,
    firstRevision: number,
    key: string,
  ): Promise<readonly RecordedEvent[]> {
    const found: RecordedEvent[] = [];
    for await (const event of this.events(sessionId, firstRevision)) {
      if (event.metadata.key !== key) break;
      found.push(event);
    }
    return found;
  }

  private async catchUp(sessionId: string, start: Folded): Promise<Folded> {
    const folded = await this.fold(sessionId, start);
    if (folded.session.status !== 'unborn') this.remember(sessionId, start, folded);
    return folded;
  }

  private async fold(sessionId: string, start: Folded): Promise<Folded> {
    let folded = start;
    for await (const stored of this.events(sessionId, start.session.revision + 1))
      folded = {
        session: evolve(folded.session, decodeForDeciding(stored)),
        position: stored.position,
      };
    return folded;
  }

  private async *events(sessionId: string, from: number): AsyncGenerator<RecordedEvent> {
    try {
      yield* this.store.read(sessionStream(sessionId), { from });
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
  }

  private remember(sessionId: string, before: Folded, after: Folded): void {
    const known = this.cache.get(sessionId);
    if (!known || known.session.revision <= after.session.revision)
      this.cache.set(sessionId, after);
    const [from, to] = [before.session.revision, after.session.revision];
    if (Math.floor((from + 1) / SNAPSHOT_EVERY) === Math.floor((to + 1) / SNAPSHOT_EVERY)) return;
    // Nobody waits for a cache, and losing it costs a longer read.
    this.snapshots.keep(sessionId, after).then(
      (kept) => kept || this.log.warn({ sessionId, revision: to }, 'the snapshot is too large'),
      (fault: unknown) => this.log.warn({ sessionId, fault }, 'no snapshot was kept'),
    );
  }
}
