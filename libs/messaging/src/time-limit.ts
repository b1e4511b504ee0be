/**
 * Aborts after so long, also when nothing but an `AbortSignal.any` knows of it: Node 20 lets a signal of
 * `AbortSignal.timeout` that nobody listens to itself be collected, and then it never fires.
 */
export function timeLimit(ms: number): AbortSignal {
  const limit = AbortSignal.timeout(ms);
  limit.addEventListener('abort', () => undefined, { once: true });
  return limit;
}
