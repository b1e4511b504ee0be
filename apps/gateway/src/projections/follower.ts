import { setTimeout as sleep } from 'node:timers/promises';
import {
  type EventStore,
  type RecordedEvent,
  StreamDeleted,
  StreamNotFound,
  type SubscriptionItem,
} from '@vmux/event-store';
import { decode, sessionStream } from '@vmux/events';
import { inBatches } from './batches';
import { project } from './project';
import { type Head, NOTHING, type RowStore } from './row-store';
import type { SessionRow } from './session-row';

export interface FollowerLog {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}

const PREFIX = sessionStream('');
const BATCH = 512;
const CLAIM_EVERY_MS = 1_000;
const RETRY_MS = 500;

/** Keeps the rows of a store up with the histories. */
export class Follower {
  private readonly stopping = new AbortController();
  private run = new AbortController();
  private position: bigint | null = null;
  private readonly done: Promise<void>;

  constructor(
    private readonly store: EventStore,
    private readonly rows: RowStore,
    private readonly log: FollowerLog,
    private readonly begin: Promise<void> = Promise.resolve(),
  ) {
    this.done = this.work();
  }

  /** Begins from zero. */
  async rebuild(): Promise<void> {
    await this.rows.clear();
    this.run.abort();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    this.run.abort();
    await this.done;
  }

  private async work(): Promise<void> {
    let lastFault = '';
    await Promise.race([this.begin, stopped(this.stopping.signal)]);
    while (!this.stopping.signal.aborted) {
      try {
        if (await this.rows.claim()) await this.follow();
        else await this.pause(CLAIM_EVERY_MS);
        lastFault = '';
      } catch (fault) {
        // Told once: a Redis that is away for an hour is one thing that happened.
        if (String(fault) !== lastFault) this.log.warn({ fault }, 'the session list falls behind');
        lastFault = String(fault);
        await this.pause(RETRY_MS);
      }
    }
  }

  /** Until somebody else is at it, the rows are begun again, or something goes wrong. */
  private async follow(): Promise<void> {
    const run = new AbortController();
    this.run = run;
    const signal = AbortSignal.any([run.signal, this.stopping.signal]);
    const claiming = this.keepClaim(run, signal);
    try {
      let head = await this.beginning();
      this.position = head.position;
      const source = {
        prefixes: [PREFIX],
        ...(head.position === null ? {} : { afterPosition: head.position }),
      };
      for await (const batch of inBatches(this.store.subscribe(source, signal), BATCH)) {
        if (signal.aborted) return;
        const next = await this.take(head, batch);
        if (next === null) return;
        head = next;
        this.position = head.position;
      }
    } finally {
      run.abort();
      await claiming;
    }
  }

  /** Where to go on; from zero when what is stored is of another event store. */
  private async beginning(): Promise<Head> {
    const head = await this.rows.head();
    if (head.last === null || (await this.recognises(head.last))) return head;
    this.log.info({}, 'the session list is of another event store: it is built again');
    await this.rows.clear();
    return NOTHING;
  }

  private async recognises(last: NonNullable<Head['last']>): Promise<boolean> {
    try {
      for await (const event of this.store.read(last.stream, { from: last.revision, limit: 1 }))
        return event.revision === last.revision && event.id === last.id;
      return false;
    } catch (fault) {
      if (fault instanceof StreamNotFound || fault instanceof StreamDeleted) return false;
      throw fault;
    }
  }

  /** Null: the rows were changed by somebody else. */
  private async take(head: Head, batch: readonly SubscriptionItem[]): Promise<Head | null> {
    const events = batch.flatMap((item) => (item.kind === 'event' ? [item.event] : []));
    const ids = [...new Set(events.map(({ stream }) => stream.slice(PREFIX.length)))];
    const known = await this.rows.rows(ids);
    const changed = new Map<string, SessionRow | null>();
    for (const event of events) {
      const id = event.stream.slice(PREFIX.length);
      const before = changed.has(id) ? changed.get(id) : known.get(id);
      changed.set(id, this.projected(before ?? null, event));
    }
    const last = events.at(-1);
    const to: Head = {
      position: batch.reduce(furthest, head.position),
      complete: head.complete || batch.some(({ kind }) => kind === 'caughtUp'),
      last: last ? { stream: last.stream, revision: last.revision, id: last.id } : head.last,
    };
    if (to.position === head.position && to.complete === head.complete) return head;
    return (await this.rows.commit({ from: head, to, rows: changed })) ? to : null;
  }

  private projected(row: SessionRow | null, stored: RecordedEvent): SessionRow | null {
    try {
      const recorded = decode(stored);
      if (!recorded) return row;
      const { event, revision } = recorded;
      return project(row, { event, revision, position: stored.position });
    } catch (fault) {
      // Whoever only shows, shows what it understands.
      const { stream, revision } = stored;
      this.log.warn({ fault, stream, revision }, 'an event cannot be read: the list leaves it out');
      return row;
    }
  }

  private async keepClaim(run: AbortController, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(CLAIM_EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      const fit = await this.stillFit().catch(() => false);
      if (!fit) run.abort();
    }
  }

  /** Rows that fell back were flushed or begun again: no event may come for long that would show it. */
  private async stillFit(): Promise<boolean> {
    const known = this.position;
    const { position } = await this.rows.head();
    if (known !== null && (position === null || position < known)) return false;
    return this.rows.claim();
  }

  private async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.stopping.signal }).catch(() => undefined);
  }
}

const stopped = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

function furthest(position: bigint | null, item: SubscriptionItem): bigint | null {
  if (item.kind === 'caughtUp') return position;
  const reached = item.kind === 'event' ? item.event.position : item.position;
  return position === null || reached > position ? reached : position;
}
