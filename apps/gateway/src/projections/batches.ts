/** What came while the last batch was worked on, up to the bound; never waits for more than one item. */
export async function* inBatches<T>(
  items: AsyncIterable<T>,
  max: number,
): AsyncGenerator<readonly T[], void, undefined> {
  let waiting: T[] = [];
  let ended = false;
  let fault: { readonly cause: unknown } | null = null;
  let arrived: () => void = () => undefined;
  let taken: () => void = () => undefined;
  let cut = false;
  const pump = (async () => {
    try {
      for await (const item of items) {
        waiting.push(item);
        arrived();
        if (waiting.length >= max && !cut)
          await new Promise<void>((resolve) => {
            taken = resolve;
          });
        if (cut) break;
      }
    } catch (cause) {
      fault = { cause };
    }
    ended = true;
    arrived();
  })();
  try {
    for (;;) {
      if (waiting.length === 0) {
        if (fault) throw (fault as { readonly cause: unknown }).cause;
        if (ended) return;
        await new Promise<void>((resolve) => {
          arrived = resolve;
        });
        continue;
      }
      const batch = waiting;
      waiting = [];
      taken();
      yield batch;
    }
  } finally {
    cut = true;
    taken();
    void pump;
  }
}
