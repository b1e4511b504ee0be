import { ApiError } from '../http/api-error';
import { isSize, MAX_SIDE, type Size } from './frames';
import { MAX_SCROLLBACK } from './screen';

export interface AttachQuery {
  readonly offset: number | null;
  readonly writer: number | null;
  readonly size: Size | null;
  readonly scrollback: number;
  readonly watches: boolean;
  readonly ticket: string | null;
}

const KNOWN = new Set(['offset', 'writer', 'cols', 'rows', 'scrollback', 'mode', 'ticket']);

export function attachQuery(query: URLSearchParams): AttachQuery {
  for (const name of query.keys())
    if (!KNOWN.has(name) || query.getAll(name).length > 1)
      throw new ApiError('invalid_request', 'a parameter is not known, or is there twice');
  const cols = numberIn(query, 'cols', 1, MAX_SIDE);
  const rows = numberIn(query, 'rows', 1, MAX_SIDE);
  if ((cols === null) !== (rows === null))
    throw new ApiError('invalid_request', 'cols and rows come together');
  const size = cols !== null && rows !== null ? { cols, rows } : null;
  if (size && !isSize(size)) throw new ApiError('invalid_request', 'the size is not one');
  const mode = query.get('mode');
  if (mode !== null && mode !== 'watch' && mode !== 'type')
    throw new ApiError('invalid_request', 'mode is watch or type');
  const ticket = query.get('ticket');
  if (ticket !== null && !/^[\x21-\x7e]{1,128}$/.test(ticket))
    throw new ApiError('invalid_request', 'ticket is not one');
  return {
    offset: numberIn(query, 'offset', 0, Number.MAX_SAFE_INTEGER),
    writer: numberIn(query, 'writer', 1, Number.MAX_SAFE_INTEGER),
    scrollback: numberIn(query, 'scrollback', 0, MAX_SCROLLBACK) ?? 0,
    ...{ size, watches: mode === 'watch', ticket },
  };
}

function numberIn(query: URLSearchParams, name: string, min: number, max: number): number | null {
  const text = query.get(name);
  if (text === null) return null;
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max))
    throw new ApiError('invalid_request', `${name} is a whole number from ${min} to ${max}`);
  return value;
}
