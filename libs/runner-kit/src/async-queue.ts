/** Hands items from callbacks to one asynchronous reader, in order; ends or fails after the last one. */
export class AsyncQueue<T> {
  readonly #items: T[] = [];
  #head = 0;
  #ending: { readonly error?: unknown } | undefined;
  #waiting: (() => void) | undefined;

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /** The item that would be read last, if it is still here. */
  get last(): T | undefined {
    return this.length > 0 ? this.#items.at(-1) : undefined;
  }

  replaceLast(item: T): void {
    this.#items[this.#items.length - 1] = item;
  }

  get length(): number {
    return this.#items.length - this.#head;
  }

  end(): void {
    this.#ending ??= {};
    this.#wake();
  }

  /** What is queued is read first. */
  fail(error: unknown): void {
    this.#ending ??= { error };
    this.#wake();
  }

  async next(): Promise<T | undefined> {
    for (;;) {
      if (this.length > 0) return this.#shift();
      if (this.#ending) {
        if ('error' in this.#ending) throw this.#ending.error;
        return undefined;
      }
      await new Promise<void>((resolve) => {
        this.#waiting = resolve;
      });
    }
  }

  #shift(): T | undefined {
    const item = this.#items[this.#head++];
    if (this.#head === this.#items.length || this.#head > 1024) {
      this.#items.splice(0, this.#head);
      this.#head = 0;
    }
    return item;
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }
}
