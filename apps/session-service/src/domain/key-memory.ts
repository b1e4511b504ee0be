/**
 * Which keys were used, for 24 hours and at least for the last 10 000. Kept in segments: remembering
 * copies only the newest one, and forgetting drops the oldest as a whole. Plain data, so that it goes
 * into a snapshot as it is.
 */
export interface KeyMemory {
  readonly newest: Segment;
  /** Oldest first, each full. */
  readonly full: readonly Segment[];
}

interface Segment {
  readonly size: number;
  /** When the last of its keys was used. */
  readonly until: number;
  readonly entries: Readonly<Record<string, Entry>>;
}

/** The revision of the first event under the key, and the start of the request's digest. */
type Entry = readonly [revision: number, digest: string];

export const SEGMENT_SIZE = 250;
export const REMEMBERED_KEYS = 10_000;
export const REMEMBERED_MS = 24 * 3600 * 1000;
const DIGEST_LENGTH = 12;

const EMPTY_SEGMENT: Segment = { size: 0, until: 0, entries: {} };
export const NO_KEYS: KeyMemory = { newest: EMPTY_SEGMENT, full: [] };

export type Recall =
  | { readonly kind: 'new' }
  | { readonly kind: 'same'; readonly revision: number }
  | { readonly kind: 'other' };

export function recall(memory: KeyMemory, key: string, digest: string): Recall {
  const entry = entryOf(memory, key);
  if (!entry) return { kind: 'new' };
  const [revision, start] = entry;
  return start === digest.slice(0, DIGEST_LENGTH) ? { kind: 'same', revision } : { kind: 'other' };
}

/** The first event under a key is the one remembered. */
export function remember(
  memory: KeyMemory,
  key: string,
  digest: string,
  revision: number,
  at: number,
): KeyMemory {
  if (entryOf(memory, key)) return memory;
  const { size, until, entries } = memory.newest;
  const newest: Segment = {
    size: size + 1,
    until: Math.max(until, at),
    entries: { ...entries, [key]: [revision, digest.slice(0, DIGEST_LENGTH)] },
  };
  if (newest.size < SEGMENT_SIZE) return { ...memory, newest };
  return { newest: EMPTY_SEGMENT, full: withoutForgotten([...memory.full, newest], at) };
}

function withoutForgotten(full: readonly Segment[], now: number): readonly Segment[] {
  const [oldest, ...younger] = full;
  if (!oldest || younger.length * SEGMENT_SIZE < REMEMBERED_KEYS) return full;
  if (now - oldest.until < REMEMBERED_MS) return full;
  return withoutForgotten(younger, now);
}

function entryOf({ newest, full }: KeyMemory, key: string): Entry | undefined {
  if (Object.hasOwn(newest.entries, key)) return newest.entries[key];
  return full.findLast(({ entries }) => Object.hasOwn(entries, key))?.entries[key];
}
