import type { SeededRandom } from '@vmux/testing';

/** Every card once before any comes again. */
export class Deck<T> {
  private left: T[] = [];

  constructor(
    private readonly cards: readonly T[],
    private readonly random: SeededRandom,
  ) {}

  next(): T {
    if (this.left.length === 0) this.left = [...this.cards];
    const [card] = this.left.splice(this.random.integer(this.left.length), 1);
    if (card === undefined) throw new Error('an empty deck');
    return card;
  }

  /** It comes once more, before all others come again. */
  putBack(card: T): void {
    this.left.push(card);
  }
}
