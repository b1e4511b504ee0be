import { WrongRevision } from '@vmux/event-store';
import { Failure, Refusal, type SessionEvent } from '@vmux/events';
import type { Session } from '../domain/state';
import { KeyedQueue } from './keyed-queue';
import { Patience } from './patience';
import type { Cause, Folded, SessionHistory } from './session-history';

const MAX_WAITING = 2000;

export interface Change {
  readonly sessionId: string;
  /** May be asked several times, each time with a newer state; `certain` is one that the store just had. */
  readonly decide: (session: Session, certain: boolean) => Promise<readonly SessionEvent[]>;
  readonly cause: Cause;
  /** What event ids derive from, beside the stream and the revision. */
  readonly key: string;
  /** Nothing is read before the first attempt: the session is taken not to exist yet. */
  readonly presumedNew?: boolean;
}

export interface Changed {
  readonly before: Folded;
  readonly after: Folded;
  readonly events: readonly SessionEvent[];
}

/** Read, fold, decide, append at the revision read; from the read again on a conflict. */
export class Deciding {
  private readonly queue = new KeyedQueue(MAX_WAITING);

  constructor(
    private readonly history: SessionHistory,
    private readonly onChanged: (sessionId: string, after: Folded) => void,
  ) {}

  async change(change: Change): Promise<Changed> {
    const changed = await this.queue.run(change.sessionId, () => this.attempt(change));
    if (changed.events.length > 0) this.onChanged(change.sessionId, changed.after);
    return changed;
  }

  /** Until nothing is under way. */
  idle(): Promise<void> {
    return this.queue.idle();
  }

  private async attempt(change: Change): Promise<Changed> {
    const { sessionId } = change;
    const guess = this.history.guess(sessionId) ?? (change.presumedNew ? this.history.none : null);
    let before = guess ?? (await this.history.load(sessionId));
    let certain = guess === null;
    const patience = new Patience();
    for (;;) {
      const events = await this.decided(change, before, certain);
      if (events && (events.length > 0 || certain)) {
        if (events.length === 0) return { before, after: before, events };
        const after = await this.appended(change, before, events);
        if (after) return { before, after, events };
        await patience.afterConflict();
      }
      // Patience is for conflicts: what was decided on a guess is always decided on the head as well.
      if (certain && patience.isOver) break;
      before = await this.history.load(sessionId);
      certain = true;
    }
    throw new Failure('conflict', `too much happens to ${sessionId} at once: try again`, true, 200);
  }

  /** Null when it is refused on a guess, which is no ground for a refusal. */
  private async decided(change: Change, { session }: Folded, certain: boolean) {
    try {
      return await change.decide(session, certain);
    } catch (fault) {
      if (!certain && fault instanceof Refusal) return null;
      throw fault;
    }
  }

  /** Null on a conflict. */
  private async appended(
    { sessionId, cause, key }: Change,
    before: Folded,
    events: readonly SessionEvent[],
  ): Promise<Folded | null> {
    try {
      return await this.history.append(sessionId, before, events, cause, key);
    } catch (fault) {
      if (fault instanceof WrongRevision) return null;
      throw fault;
    }
  }
}
