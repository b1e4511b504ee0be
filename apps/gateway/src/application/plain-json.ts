type Plain =
  | null
  | boolean
  | number
  | string
  | readonly Plain[]
  | { readonly [key: string]: Plain };

const BIGINT = '$bigint';
const MAP = '$map';

/** Maps and big integers as JSON can carry them. Much faster than a replacer that sees every field. */
export function plainOf(value: unknown): Plain {
  if (typeof value === 'bigint') return { [BIGINT]: String(value) };
  if (typeof value !== 'object' || value === null) return value as Plain;
  if (Array.isArray(value)) return value.map(plainOf);
  if (value instanceof Map) return { [MAP]: [...value].map(([key, each]) => [key, plainOf(each)]) };
  const copy: Record<string, Plain> = {};
  for (const [key, each] of Object.entries(value))
    copy[key] = typeof each === 'object' || typeof each === 'bigint' ? plainOf(each) : each;
  return copy;
}

/** The other way; changes and returns what it is given. */
export function fromPlain(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const fields = value as Record<string, unknown>;
  if (typeof fields[BIGINT] === 'string') return BigInt(fields[BIGINT]);
  if (Array.isArray(fields[MAP]))
    return new Map(fields[MAP].map(([key, each]: [unknown, unknown]) => [key, fromPlain(each)]));
  for (const key in fields)
    if (typeof fields[key] === 'object') fields[key] = fromPlain(fields[key]);
  return value;
}
