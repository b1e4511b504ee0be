/**
 * Which keys were used, for 24 hours and at least for the last 10 000, but never more than the last
 * 200 000: at the rate that a key is allowed, those of more than a quarter of an hour. Kept in segments: remembering
 * copies only the short list of the newest, and forgetting drops the oldest segment as a whole. Plain
 * data, so that it goes into a snapshot as it is.
 */
export interface KeyMemory {
  readonly newest: readonly Entry[];
  /** Oldest first, each full. */
  readonly full: readonly Segment[];
}

/** The revision of the first event under the key, and the start of the request's digest. */
type Entry = readonly [key: string, revision: number, digest: string];

interface Segment {
  /** When the last of its keys was used. */
  readonly until: number;
  readonly entries: Readonly<Record<string, Entry>>;
}

export const SEGMENT_SIZE = 125;
export const REMEMBERED_KEYS = 10_000;
/** A session whose keys were all used within 24 hours forgets the oldest beyond these. */
export const MOST_REMEMBERED_KEYS = 200_000;
export const REMEMBERED_MS = 24 * 3600 * 1000;
const DIGEST_LENGTH = 12;

export const NO_KEYS: KeyMemory = { newest: [], full: [] };

export type Recall =
  | { readonly kind: 'new' }
  | { readonly kind: 'same'; readonly revision: number }
  | { readonly kind: 'other' };

export function recall(memory: KeyMemory, key: string, digest: string): Recall {
  const entry = entryOf(memory, key);
  if (!entry) return { kind: 'new' };
  const [, revision, start] = entry;
  return start === digest.slice(0, DIGEST_LENGTH) ? { kind: 'same', revision } : { kind: 'other' };
}

/** Events under one key follow one another; the first of them is the one remembered. */
export function remember(
  memory: KeyMemory,
  key: string,
  digest: string,
  revision: number,
  at: number,
): KeyMemory {
  if (memory.newest.at(-1)?.[0] === key) return memory;
  const newest: readonly Entry[] = [
    ...memory.newest,
    [key, revision, digest.slice(0, DIGEST_LENGTH)],
  ];
  if (newest.length < SEGMENT_SIZE) return { ...memory, newest };
  const entries = Object.fromEntries(newest.map((entry) => [entry[0], entry]));
  return { newest: [], full: withoutForgotten([...memory.full, { until: at, entries }], at) };
}

function withoutForgotten(full: readonly Segment[], now: number): readonly Segment[] {
  const [oldest, ...younger] = full;
  if (!oldest || younger.length * SEGMENT_SIZE < REMEMBERED_KEYS) return full;
  const fits = full.length * SEGMENT_SIZE <= MOST_REMEMBERED_KEYS;
  if (fits && now - oldest.until < REMEMBERED_MS) return full;
  return withoutForgotten(younger, now);
}

/** Oldest first: a key whose events straddle two segments is known by its first. */
function entryOf({ newest, full }: KeyMemory, key: string): Entry | undefined {
  for (const { entries } of full) if (Object.hasOwn(entries, key)) return entries[key];
  return newest.find(([each]) => each === key);
}
