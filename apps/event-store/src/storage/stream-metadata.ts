import { ALL } from './stream-index';

export interface StreamLimits {
  readonly truncateBefore: number;
  readonly maxCount: number | null;
  readonly maxAgeS: number | null;
}

const NONE: StreamLimits = { truncateBefore: 0, maxCount: null, maxAgeS: null };

/** The limits in a `$metadata` event. What cannot be understood limits nothing: it never removes events. */
export function parseStreamLimits(data: Buffer): StreamLimits {
  const metadata = parseObject(data);
  if (!metadata) return NONE;
  const truncateBefore = metadata.$tb;
  return {
    truncateBefore:
      typeof truncateBefore === 'number' && truncateBefore > 0
        ? Math.min(Math.floor(truncateBefore), ALL)
        : 0,
    maxCount: positiveInteger(metadata.$maxCount),
    maxAgeS: positiveInteger(metadata.$maxAge),
  };
}

/** The metadata with another `$tb`; 2^63-1, which JSON numbers cannot hold exactly, marks a deleted stream. */
export function withTruncateBefore(data: Buffer | undefined, truncateBefore: number): Buffer {
  const others = Object.entries((data && parseObject(data)) ?? {}).filter(([key]) => key !== '$tb');
  const fields = others.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  fields.push(`"$tb":${truncateBefore === ALL ? '9223372036854775807' : truncateBefore}`);
  return Buffer.from(`{${fields.join(',')}}`);
}

function parseObject(data: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(data.toString('utf8'));
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? { ...value }
      : undefined;
  } catch {
    return undefined;
  }
}

const positiveInteger = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : null;
