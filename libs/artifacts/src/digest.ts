import { createHash } from 'node:crypto';

/** Lower-case hex of the content's SHA-256. */
export type Digest = string;

export const isDigest = (text: string): text is Digest => /^[0-9a-f]{64}$/.test(text);

export const digestOf = (bytes: Uint8Array): Digest =>
  createHash('sha256').update(bytes).digest('hex');
