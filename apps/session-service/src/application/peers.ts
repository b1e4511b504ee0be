import { createHash } from 'node:crypto';

export const PRESENCE_EVERY_MS = 2000;
const FRESH_MS = 3 * PRESENCE_EVERY_MS;

/**
 * The session services that live, this one included, and which of them sends a session's orders. They
 * may disagree for a while: then orders are sent twice, which changes nothing.
 */
export class Peers {
  private readonly heard = new Map<string, number>();

  constructor(
    readonly self: string,
    private readonly now: () => number,
  ) {}

  hear(instance: string): void {
    this.heard.set(instance, this.now());
  }

  leave(instance: string): void {
    this.heard.delete(instance);
  }

  living(): readonly string[] {
    for (const [instance, heardAt] of this.heard)
      if (this.now() - heardAt > FRESH_MS) this.heard.delete(instance);
    return [...new Set([this.self, ...this.heard.keys()])].sort();
  }

  /** Rendezvous hashing: when one leaves, only its own sessions change hands. */
  isMine(sessionId: string): boolean {
    const living = this.living();
    if (living.length === 1) return true;
    let winner = { instance: this.self, weight: '' };
    for (const instance of living) {
      const weight = createHash('sha256').update(`${instance}\n${sessionId}`).digest('hex');
      if (weight > winner.weight) winner = { instance, weight };
    }
    return winner.instance === this.self;
  }
}
