import { MalformedMessage } from './errors';

export const encodeJson = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

/** Never trusts its input: the caller checks the shape of what comes out. */
export function decodeJson(data: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
  } catch (cause) {
    throw new MalformedMessage('not JSON', { cause });
  }
}
