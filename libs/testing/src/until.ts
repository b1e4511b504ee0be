import { inspect } from 'node:util';

export interface UntilOptions {
  readonly timeoutMs?: number;
  readonly everyMs?: number;
}

/**
 * Waits until the condition returns something truthy and returns it. A condition that throws is asked
 * again. Fails with the last value (or fault) seen.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  { timeoutMs = 10_000, everyMs = 10 }: UntilOptions = {},
): Promise<Exclude<T, false | null | undefined | 0 | ''>> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    let seen: unknown;
    try {
      const value = await condition();
      if (value) return value as Exclude<T, false | null | undefined | 0 | ''>;
      seen = value;
    } catch (fault) {
      seen = fault;
    }
    if (Date.now() >= deadline) {
      throw new Error(`not so after ${timeoutMs} ms; last seen: ${inspect(seen)}`, { cause: seen });
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
