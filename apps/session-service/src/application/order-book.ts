import type { SealedOrder } from '@vmux/events';

const FIRST_REPEAT_MS = 1000;
const LAST_REPEAT_MS = 30_000;

interface Entry {
  readonly runnerId: string;
  readonly repeatAt: number;
  readonly pauseMs: number;
}

/** Which orders were sent and when each is due again. In memory alone: forgetting it only repeats orders. */
export class OrderBook {
  private readonly sent = new Map<string, Map<string, Entry>>();

  /** Those that are due; notes them as sent, and forgets what is owed no longer. */
  due(sessionId: string, owed: readonly SealedOrder[], now: number): readonly SealedOrder[] {
    const before = this.sent.get(sessionId);
    const after = new Map<string, Entry>();
    const due = owed.filter(({ orderId, runnerId }) => {
      const entry = before?.get(orderId);
      if (entry && entry.runnerId === runnerId && entry.repeatAt > now) {
        after.set(orderId, entry);
        return false;
      }
      const pauseMs = entry ? Math.min(LAST_REPEAT_MS, entry.pauseMs * 2) : FIRST_REPEAT_MS;
      after.set(orderId, { runnerId, pauseMs, repeatAt: now + pauseMs });
      return true;
    });
    if (after.size === 0) this.sent.delete(sessionId);
    else this.sent.set(sessionId, after);
    return due;
  }

  nextRepeat(sessionId: string): number | null {
    const entries = [...(this.sent.get(sessionId)?.values() ?? [])];
    return entries.length === 0 ? null : Math.min(...entries.map(({ repeatAt }) => repeatAt));
  }

  /** Its orders are due now: it may never have heard them. Returns whose they are. */
  hurry(runnerId: string): readonly string[] {
    const sessions: string[] = [];
    for (const [sessionId, entries] of this.sent) {
      const mine = [...entries].filter(([, entry]) => entry.runnerId === runnerId);
      for (const [orderId] of mine) entries.delete(orderId);
      if (mine.length > 0) sessions.push(sessionId);
    }
    return sessions;
  }

  forgetAll(): void {
    this.sent.clear();
  }

  forget(sessionId: string): void {
    this.sent.delete(sessionId);
  }
}
