import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { decode, Malformed, sessionStream } from '@vmux/events';
import { apply, type SessionView, unborn } from './session-view';
import type { ViewSnapshots } from './view-snapshots';

interface Entry {
  view: SessionView;
  reading: Promise<void> | null;
  next: Promise<void> | null;
  readonly listeners: Set<() => void>;
  live: AbortController | null;
  lingering: NodeJS.Timeout | undefined;
  fault: unknown;
  /** Of the event that the view was folded up to. */
  eventId: string;
  /** The revision of the view that was kept last. */
  kept: number;
  keeping: boolean;
}

/** A history is long when reading a snapshot costs less than reading on. */
const LONG_EVENTS = 512;
/** A view is kept again when its history has grown by so much. */
const KEEP_EVERY_EVENTS = 1024;
const KEEP_EVERY_PART = 8;
const LINGER_MS = 10_000;
/** Every one of them is a call to the store, which takes no more than a thousand from one process. */
const MAX_LINGERING = 256;

/**
 * Views of sessions, each brought up to its stream's head when it is read. What was folded before is
 * kept, so that a read costs what happened since the last one, not the whole history.
 */
export class SessionReader {
  private readonly entries = new Map<string, Entry>();
  /** Followed though nobody waits, the longest first. */
  private readonly idle = new Set<Entry>();

  constructor(
    private readonly store: EventStore,
    private readonly onFault: (fault: unknown, sessionId: string) => void,
    private readonly snapshots: Pick<ViewSnapshots, 'find' | 'keep'> | null = null,
    /** Sessions and execs that are kept, together. */
    private readonly maxKept = 200_000,
  ) {}

  /** At the stream's head; null for a session that never was. */
  async read(sessionId: string): Promise<SessionView | null> {
    const entry = this.entryOf(sessionId);
    await this.caughtUp(entry);
    if (entry.view.status !== 'unborn') return entry.view;
    if (isIdle(entry) && !entry.live) this.entries.delete(sessionId);
    return null;
  }

  /** As it was when it was last looked at, without asking the store. */
  known(sessionId: string): SessionView | null {
    const view = this.entries.get(sessionId)?.view;
    return view && view.status !== 'unborn' ? view : null;
  }

  /**
   * Waits until `done` says something about the view, and returns that; undefined once the signal aborts.
   * All who wait for one session share one subscription.
   */
  async waitFor<T>(
    sessionId: string,
    done: (view: SessionView) => T | undefined,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    await this.caughtUp(this.entryOf(sessionId));
    return this.waitForLasting(sessionId, done, signal);
  }

  /** For what stays true once it is: an older view may say it as well, so that nothing is read first. */
  async waitForLasting<T>(
    sessionId: string,
    done: (view: SessionView) => T | undefined,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    const entry = this.entryOf(sessionId);
    const already = done(entry.view);
    if (already !== undefined || signal.aborted) return already;
    return new Promise<T | undefined>((resolve, reject) => {
      const finish = (settle: () => void) => {
        entry.listeners.delete(listener);
        signal.removeEventListener('abort', aborted);
        this.unwatch(entry);
        settle();
      };
      const aborted = () => finish(() => resolve(undefined));
      const listener = () => {
        const value = entry.fault ? undefined : done(entry.view);
        if (entry.fault) finish(() => reject(entry.fault));
        if (value !== undefined) finish(() => resolve(value));
      };
      entry.listeners.add(listener);
      signal.addEventListener('abort', aborted);
      this.watch(sessionId, entry);
      listener();
    });
  }

  private entryOf(sessionId: string): Entry {
    const known = this.entries.get(sessionId);
    if (known) {
      // The map is in order of use: the first is the one that was not needed for longest.
      this.entries.delete(sessionId);
      this.entries.set(sessionId, known);
      return known;
    }
    const entry: Entry = {
      view: unborn(sessionId),
      ...{ reading: null, next: null, live: null, lingering: undefined, fault: null },
      ...{ eventId: '', kept: -1, keeping: false },
      listeners: new Set(),
    };
    this.evict();
    this.entries.set(sessionId, entry);
    return entry;
  }

  /** A read that is under way may have passed the head before the caller's own write: one more follows. */
  private caughtUp(entry: Entry): Promise<void> {
    if (entry.next) return entry.next;
    const start = () => {
      entry.next = null;
      entry.reading = this.catchUp(entry).finally(() => {
        entry.reading = null;
      });
      return entry.reading;
    };
    if (!entry.reading) return start();
    entry.next = entry.reading.then(start, start);
    return entry.next;
  }

  private async catchUp(entry: Entry): Promise<void> {
    const isNew = entry.view.revision < 0;
    const read = await this.readOn(entry, isNew ? LONG_EVENTS : undefined);
    if (isNew && read === LONG_EVENTS) {
      await this.skipTo(entry);
      await this.readOn(entry);
    }
    this.keep(entry);
  }

  /** Returns how many events were read. */
  private async readOn(entry: Entry, limit?: number): Promise<number> {
    let count = 0;
    try {
      const options = { from: entry.view.revision + 1, limit };
      for await (const event of this.store.read(sessionStream(entry.view.id), options)) {
        this.take(entry, event);
        count += 1;
      }
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    return count;
  }

  /** Takes what was folded before, if it is of this very history. */
  private async skipTo(entry: Entry): Promise<void> {
    const { id } = entry.view;
    const found = await this.snapshots?.find(id).catch((fault: unknown) => {
      this.onFault(fault, id);
      return null;
    });
    if (!found || found.view.revision <= entry.view.revision) return;
    const options = { from: found.view.revision, limit: 1 };
    for await (const event of this.store.read(sessionStream(id), options)) {
      if (event.id !== found.eventId || event.revision !== found.view.revision) return;
      entry.view = found.view;
      entry.eventId = found.eventId;
      entry.kept = found.view.revision;
    }
  }

  /** Nobody waits for a cache, and losing it costs a longer read. */
  private keep(entry: Entry): void {
    const { view, eventId, kept } = entry;
    const since = view.revision - kept;
    const due = Math.max(KEEP_EVERY_EVENTS, Math.floor(view.revision / KEEP_EVERY_PART));
    if (!this.snapshots || entry.keeping || since < due || view.status === 'deleted') return;
    entry.kept = view.revision;
    entry.keeping = true;
    this.snapshots
      .keep({ view, eventId })
      .catch((fault: unknown) => this.onFault(fault, view.id))
      .finally(() => {
        entry.keeping = false;
      });
  }

  private take(entry: Entry, stored: RecordedEvent): void {
    const { view } = entry;
    if (stored.revision <= view.revision) return;
    view.revision = stored.revision;
    view.position = stored.position;
    entry.eventId = stored.id;
    const recorded = this.decoded(stored, view.id);
    if (recorded) apply(view, recorded, stored.position);
    for (const listener of [...entry.listeners]) listener();
  }

  private decoded(stored: RecordedEvent, sessionId: string) {
    try {
      return decode(stored);
    } catch (fault) {
      if (!(fault instanceof Malformed)) throw fault;
      // A reader shows what it understands; only who decides must understand everything.
      this.onFault(fault, sessionId);
      return null;
    }
  }

  private watch(sessionId: string, entry: Entry): void {
    this.idle.delete(entry);
    clearTimeout(entry.lingering);
    if (entry.live) return;
    const live = new AbortController();
    entry.live = live;
    entry.fault = null;
    const run = async () => {
      const source = { stream: sessionStream(sessionId), afterRevision: afterOf(entry.view) };
      for await (const item of this.store.subscribe(source, live.signal)) {
        if (item.kind !== 'event') continue;
        this.take(entry, item.event);
        this.keep(entry);
      }
    };
    run().then(
      () => {
        if (!live.signal.aborted) this.failed(entry, new Error('the subscription ended by itself'));
      },
      (fault) => {
        if (!live.signal.aborted) this.failed(entry, fault);
      },
    );
  }

  private failed(entry: Entry, fault: unknown): void {
    this.idle.delete(entry);
    entry.live = null;
    if (entry.listeners.size === 0) return;
    this.onFault(fault, entry.view.id);
    entry.fault = fault;
    for (const listener of [...entry.listeners]) listener();
  }

  /** Whoever waited once is likely to wait again soon: the subscription is kept for a while. */
  private unwatch(entry: Entry): void {
    if (entry.listeners.size > 0 || !entry.live) return;
    clearTimeout(entry.lingering);
    entry.lingering = setTimeout(() => this.leave(entry), LINGER_MS).unref();
    this.idle.delete(entry);
    this.idle.add(entry);
    const [oldest] = this.idle;
    if (oldest && this.idle.size > MAX_LINGERING) this.leave(oldest);
  }

  private leave(entry: Entry): void {
    clearTimeout(entry.lingering);
    this.idle.delete(entry);
    if (entry.listeners.size > 0) return;
    entry.live?.abort();
    entry.live = null;
  }

  private evict(): void {
    let kept = 0;
    for (const { view } of this.entries.values()) kept += 1 + view.execs.size;
    for (const [id, entry] of this.entries) {
      if (kept <= this.maxKept) return;
      if (!isIdle(entry)) continue;
      kept -= 1 + entry.view.execs.size;
      this.leave(entry);
      this.entries.delete(id);
    }
  }
}

const isIdle = ({ listeners, reading, next }: Entry): boolean =>
  listeners.size === 0 && !reading && !next;

const afterOf = ({ revision }: SessionView): number | undefined =>
  revision < 0 ? undefined : revision;
