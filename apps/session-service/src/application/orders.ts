import { StoreUnavailable } from '@vmux/event-store';
import { type Order, type SealedOrder, UnknownEvent } from '@vmux/events';
import { type Owed, react } from '../domain/react';
import { isLiving, type Session } from '../domain/state';
import type { Faults } from './faults';
import type { Log } from './log';
import type { OpenSessions } from './open-sessions';
import { OrderBook } from './order-book';
import type { Peers } from './peers';
import type { SessionHistory } from './session-history';
import { WakeUps } from './wake-ups';
import { WorkSet } from './work-set';

const LOOKED_AT_AT_ONCE = 16;
const AFTER_FAULT_MS = 2000;

/** What Orders does to the world; each may be repeated. */
export interface Hands {
  /** Opens what is sealed and sends it to its runner. */
  send(order: SealedOrder): Promise<Order>;
  /** Asks for what the state owes beside orders. Returns when to look again even so. */
  ask(session: Session, owed: Owed, now: number): Promise<number | null>;
  /** Destroys the key and drops the streams of a session that was deleted. */
  erase(session: Session & { status: 'deleted' }): Promise<void>;
}

/**
 * Sees to it that what a session's state owes is done: after every change, when a deadline passes, and
 * again for orders that the history does not show done.
 */
export class Orders {
  private readonly book = new OrderBook();
  private readonly seen = new Map<string, number>();
  private readonly ending = new Set<string>();
  private readonly wakeUps: WakeUps;
  private readonly work: WorkSet;

  constructor(
    private readonly history: SessionHistory,
    private readonly open: OpenSessions,
    private readonly peers: Peers,
    private readonly hands: Hands,
    private readonly faults: Faults,
    private readonly log: Log,
    private readonly now: () => number,
  ) {
    this.work = new WorkSet(LOOKED_AT_AT_ONCE, (sessionId) => this.look(sessionId));
    this.wakeUps = new WakeUps(now, (sessionId) => this.work.add(sessionId));
  }

  /** Something was appended, here or elsewhere. */
  changed(sessionId: string, revision: number, over: boolean): void {
    const seen = this.seen.get(sessionId) ?? -1;
    // An append is heard of twice: by its answer and as it comes by.
    if (revision <= seen && !over) return;
    this.seen.set(sessionId, Math.max(revision, seen));
    if (over) this.ending.add(sessionId);
    this.work.add(sessionId);
  }

  runnerAppeared(runnerId: string): void {
    for (const sessionId of this.book.hurry(runnerId)) this.work.add(sessionId);
  }

  /** Whatever was sent may not have arrived. */
  sendAllAgain(): void {
    this.book.forgetAll();
    this.lookAtAll();
  }

  lookAtAll(): void {
    for (const sessionId of this.open.list()) this.work.add(sessionId);
  }

  async stop(): Promise<void> {
    this.wakeUps.stop();
    await this.work.stop();
  }

  private async look(sessionId: string): Promise<void> {
    try {
      const mine = this.peers.isMine(sessionId);
      if (!mine && !this.ending.has(sessionId)) return this.leave(sessionId);
      const session = await this.stateOf(sessionId);
      if (session.status === 'deleted') await this.hands.erase(session);
      const owed = react(session, this.now());
      if (isSettled(session, owed)) return this.settle(sessionId);
      if (!mine) return this.leave(sessionId);
      await this.send(sessionId, owed.orders);
      const again = await this.hands.ask(session, owed, this.now());
      this.wakeUps.set(sessionId, earliest(owed.nextAt, again, this.book.nextRepeat(sessionId)));
    } catch (fault) {
      if (fault instanceof UnknownEvent) this.faults.notUnderstood(fault);
      // Readiness says that the store is away, once for all sessions.
      else if (fault instanceof StoreUnavailable) this.log.debug({ sessionId }, fault.message);
      else this.log.warn({ sessionId, fault }, 'what is owed could not be done yet');
      this.wakeUps.set(sessionId, this.now() + AFTER_FAULT_MS);
    }
  }

  /** As new as the last change that was seen. */
  private async stateOf(sessionId: string): Promise<Session> {
    const guess = this.history.guess(sessionId);
    const newEnough = guess && guess.session.revision >= (this.seen.get(sessionId) ?? -1);
    return (newEnough ? guess : await this.history.load(sessionId)).session;
  }

  private async send(sessionId: string, owed: readonly SealedOrder[]): Promise<void> {
    for (const order of this.book.due(sessionId, owed, this.now())) {
      try {
        await this.hands.send(order);
      } catch (fault) {
        // Others are not held up by one that cannot be opened or sent; it stays owed.
        this.log.error({ sessionId, order: order.orderId, fault }, 'an order could not be sent');
      }
    }
  }

  private leave(sessionId: string): void {
    this.book.forget(sessionId);
    this.wakeUps.set(sessionId, null);
  }

  private settle(sessionId: string): void {
    this.leave(sessionId);
    this.ending.delete(sessionId);
    this.seen.delete(sessionId);
    this.open.settle(sessionId);
  }
}

const isSettled = (session: Session, owed: Owed): boolean =>
  !isLiving(session) && owed.orders.length === 0 && owed.forks.length === 0;

const earliest = (...times: readonly (number | null)[]): number | null => {
  const set = times.filter((time) => time !== null);
  return set.length === 0 ? null : Math.min(...set);
};
