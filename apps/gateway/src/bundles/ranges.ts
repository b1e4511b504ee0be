import type { UploadPart } from '@vmux/artifacts';
import { ApiError } from '../http/api-error';

/** `Content-Range: bytes <first>-<last>/<total>` of a request. */
export function partOf(header: string): UploadPart {
  const found = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/.exec(header);
  const [from, last, total] = (found ?? []).slice(1).map(Number);
  if (from === undefined || last === undefined || total === undefined)
    throw new ApiError('invalid_request', 'Content-Range is bytes <first>-<last>/<total>');
  if (from > last || last >= total)
    throw new ApiError('invalid_request', 'Content-Range is of bytes that there cannot be');
  return { from, end: last + 1, total };
}

export interface Wanted {
  readonly from: number;
  readonly end: number;
}

/** What a `Range` of one part asks for; undefined for all of it, as for any that is of another form. */
export function wantedOf(header: string | undefined, total: number): Wanted | undefined {
  const found = /^bytes=(\d{1,15})-(\d{0,15})$/.exec(header ?? '');
  if (!found) return undefined;
  const from = Number(found[1]);
  const end = found[2] === '' ? total : Math.min(Number(found[2]) + 1, total);
  if (from >= total)
    throw new ApiError('range_past_end', `there are ${total} bytes`, null, { size: total });
  return from < end ? { from, end } : undefined;
}

/**
 * A part of what comes. The last bytes follow when all of it is known to be sound, so that nobody takes for
 * whole what is not.
 */
export async function* partBetween(
  { from, end }: Wanted,
  source: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  let at = 0;
  let held: Buffer | undefined;
  for await (const bytes of source) {
    const part = bytes.subarray(Math.max(0, from - at), Math.max(0, end - at));
    at += bytes.length;
    if (part.length === 0) continue;
    if (held) yield held;
    held = part;
  }
  if (held) yield held;
}
