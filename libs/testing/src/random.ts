/** A generator that gives the same numbers for the same seed: a failing test can be run again. */
export interface SeededRandom {
  readonly seed: number;
  /** From 0 up to and without 1. */
  next(): number;
  /** From 0 up to and without the bound. */
  integer(bound: number): number;
  pick<T>(values: readonly T[]): T;
  bytes(length: number): Buffer;
  /** A version 4 UUID. */
  uuid(): string;
}

/** The mulberry32 generator: 32 bits of state, good enough to vary a test. */
export function seededRandom(seed: number): SeededRandom {
  let state = seed >>> 0;
  const uint32 = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const next = () => uint32() / 2 ** 32;
  const integer = (bound: number) => Math.floor(next() * bound);
  const bytes = (length: number) => {
    const padded = Buffer.alloc(Math.ceil(length / 4) * 4);
    for (let at = 0; at < padded.length; at += 4) padded.writeUInt32LE(uint32(), at);
    return padded.subarray(0, length);
  };
  return {
    seed,
    next,
    integer,
    bytes,
    pick: (values) => {
      const value = values[integer(values.length)];
      if (value === undefined) throw new Error('nothing to pick from');
      return value;
    },
    uuid: () => {
      const raw = bytes(16);
      raw.writeUInt8((raw.readUInt8(6) & 0x0f) | 0x40, 6);
      raw.writeUInt8((raw.readUInt8(8) & 0x3f) | 0x80, 8);
      return raw.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
    },
  };
}
