type Register = (title: string, run: () => Promise<void>, timeoutMs?: number) => void;

/** `it`, or an `it` that skips and says why in the title: `skipUnless(hasDocker, 'no Docker engine')('…', …)`. */
export function skipUnless(condition: boolean, reason: string): Register {
  if (condition) return (title, run, timeoutMs) => it(title, run, timeoutMs);
  return (title, run, timeoutMs) => it.skip(`${title} (skipped: ${reason})`, run, timeoutMs);
}

/** The same for a whole group. */
export function describeUnless(
  condition: boolean,
  reason: string,
): (title: string, group: () => void) => void {
  if (condition) return describe;
  return (title, group) => describe.skip(`${title} (skipped: ${reason})`, group);
}
