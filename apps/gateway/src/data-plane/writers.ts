let last = 0;

/** Writers grow with time, in microseconds, and never repeat within this process. */
export function nextWriter(): number {
  last = Math.max(last + 1, Date.now() * 1000);
  return last;
}
