/**
 * Which keys were used: all of the last 24 hours, and at least the last 10 000. None is forgotten earlier;
 * a session that has used as many as there is room for takes no new command until the oldest are a day old.
 * Packed into strings of records of one length, because there may be a million of them: the newest in the
 * order in which they came, the others in segments that are sorted, never change and are forgotten as a
 * whole. Plain data, so that it goes into a snapshot as it is.
 */
export interface KeyMemory {
  readonly newest: string;
  /** When the last of the newest was used, or one before it if that was later. */
  readonly newestAt: number;
  /** Oldest first, each full. */
  readonly segments: readonly Segment[];
  /** How many segments are forgotten: the number of the first that is there. */
  readonly forgotten: number;
}

export interface Segment {
  /** When the last of its keys was used. */
  readonly until: number;
  /** Sorted. */
  readonly records: string;
  /** How many records stand before those whose keys start with the same two characters, as char codes. */
  readonly cells: string;
}

export const SEGMENT_KEYS = 2000;
export const REMEMBERED_KEYS = 10_000;
export const REMEMBERED_MS = 24 * 3600 * 1000;
/** What a session has room for: 11 new commands a second, all day long. */
export const MOST_KEYS = 1_000_000;
/** Room that is left for commands that end something. */
export const RESERVED_KEYS = 10_000;

/** Of the 128 bits of a key and the 256 of a digest: by accident no two are the same in these. */
const KEY_CHARS = 16;
const DIGEST_BYTES = 6;
const DIGEST_CHARS = 8;
/** In base 36: revisions up to 78 billion. */
const REVISION_CHARS = 7;
const DIGEST_AT = KEY_CHARS;
const REVISION_AT = DIGEST_AT + DIGEST_CHARS;
export const RECORD_CHARS = REVISION_AT + REVISION_CHARS;

export const NO_KEYS: KeyMemory = { newest: '', newestAt: 0, segments: [], forgotten: 0 };

export type Recall =
  | { readonly kind: 'new' }
  | { readonly kind: 'same'; readonly revision: number }
  | { readonly kind: 'other' };

export function recall(memory: KeyMemory, key: string, digest: string): Recall {
  const record = recordOf(memory, key.slice(0, KEY_CHARS));
  if (record === null) return { kind: 'new' };
  if (record.slice(DIGEST_AT, REVISION_AT) !== packedDigest(digest)) return { kind: 'other' };
  return { kind: 'same', revision: Number.parseInt(record.slice(REVISION_AT), 36) };
}

/** Events under one key follow one another; the first of them is the one remembered. */
export function remember(
  memory: KeyMemory,
  key: string,
  digest: string,
  revision: number,
  at: number,
): KeyMemory {
  const start = key.slice(0, KEY_CHARS);
  if (memory.newest.startsWith(start, memory.newest.length - RECORD_CHARS)) return memory;
  const packedRevision = revision.toString(36).padStart(REVISION_CHARS, '0');
  const record = `${start}${packedDigest(digest)}${packedRevision}`;
  const before = isFull(memory.newest) ? closed(memory, at) : memory;
  return {
    ...before,
    newest: before.newest + record,
    newestAt: Math.max(before.newestAt, at),
  };
}

export const countOf = ({ newest, segments }: KeyMemory): number =>
  segments.length * SEGMENT_KEYS + newest.length / RECORD_CHARS;

/** About what it takes in memory. */
export const bytesOf = (memory: KeyMemory): number =>
  countOf(memory) * RECORD_CHARS + memory.segments.length * CELLS * 2;

/** When there is room for another key beyond so many: 0 when there is now, else when the oldest may go. */
export function roomAt(memory: KeyMemory, most: number, now: number): number {
  const [oldest] = memory.segments;
  if (!oldest || countOf(memory) < most) return 0;
  const at = oldest.until + REMEMBERED_MS;
  return at <= now ? 0 : at;
}

const isFull = (records: string): boolean => records.length >= SEGMENT_KEYS * RECORD_CHARS;

function closed({ newest, newestAt, segments, forgotten }: KeyMemory, now: number): KeyMemory {
  const all = [...segments, segmentOf(sorted(newest), newestAt)];
  const fewest = Math.ceil(REMEMBERED_KEYS / SEGMENT_KEYS);
  let gone = 0;
  while (all.length - gone > fewest && isOld(all[gone], now)) gone += 1;
  return { newest: '', newestAt, segments: all.slice(gone), forgotten: forgotten + gone };
}

const isOld = (segment: Segment | undefined, now: number): boolean =>
  segment !== undefined && now - segment.until >= REMEMBERED_MS;

function sorted(records: string): string {
  const each = Array.from({ length: records.length / RECORD_CHARS }, (_, index) =>
    records.slice(index * RECORD_CHARS, (index + 1) * RECORD_CHARS),
  );
  return each.sort().join('');
}

const packedDigest = (hex: string): string =>
  Buffer.from(hex.slice(0, 2 * DIGEST_BYTES), 'hex').toString('base64url');

function recordOf({ newest, segments }: KeyMemory, start: string): string | null {
  for (let at = newest.indexOf(start); at >= 0; at = newest.indexOf(start, at + 1))
    if (at % RECORD_CHARS === 0) return newest.slice(at, at + RECORD_CHARS);
  const cell = cellOf(start, 0);
  for (const { records, cells } of segments) {
    const found = searched(records, cells.charCodeAt(cell), cells.charCodeAt(cell + 1), start);
    if (found !== null) return found;
  }
  return null;
}

/** Between two records. Most cells are empty, so that most segments are not looked into. */
function searched(records: string, from: number, to: number, start: string): string | null {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const order = compared(records, middle * RECORD_CHARS, start);
    if (order === 0) return records.slice(middle * RECORD_CHARS, (middle + 1) * RECORD_CHARS);
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return null;
}

function compared(records: string, from: number, start: string): number {
  for (let index = 0; index < start.length; index += 1) {
    const order = records.charCodeAt(from + index) - start.charCodeAt(index);
    if (order !== 0) return order;
  }
  return 0;
}

export function segmentOf(records: string, until: number): Segment {
  const counts = new Array<number>(CELLS + 1).fill(0);
  const count = records.length / RECORD_CHARS;
  for (let index = 0; index < count; index += 1) {
    const after = cellOf(records, index * RECORD_CHARS) + 1;
    counts[after] = (counts[after] ?? 0) + 1;
  }
  let sum = 0;
  const cells = counts.map((each) => {
    sum += each;
    return sum;
  });
  return { until, records, cells: String.fromCharCode(...cells) };
}

/** In the order of the characters themselves, by which records are sorted. */
const ALPHABET = [...'-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz'];
const RANKS = new Map(ALPHABET.map((char, rank) => [char.charCodeAt(0), rank]));
const CELLS = ALPHABET.length ** 2;

const cellOf = (text: string, at: number): number =>
  rankOf(text, at) * ALPHABET.length + rankOf(text, at + 1);

const rankOf = (text: string, at: number): number => RANKS.get(text.charCodeAt(at)) ?? 0;
