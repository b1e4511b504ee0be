import { createCipheriv } from 'node:crypto';

/** Bytes that the checker knows without having seen them: a cipher's key stream, by a seed. */
const keyOf = (seed: number): string => seed.toString(16).padStart(32, '0');
const ivOf = (slice: number): string => slice.toString(16).padStart(32, '0');

/** A shell line that writes `slices` pieces of `bytes` each, with a pause between them. */
export const generatorLine = (
  seed: number,
  slices: number,
  bytes: number,
  pauseSeconds: number,
): string =>
  `i=0; while [ $i -lt ${slices} ]; do ` +
  `head -c ${bytes} /dev/zero | openssl enc -aes-128-ctr -K ${keyOf(seed)} -iv $(printf %032x $i); ` +
  `i=$((i+1)); sleep ${pauseSeconds}; done`;

export const generated = (seed: number, slices: number, bytes: number): Buffer =>
  Buffer.concat(
    Array.from({ length: slices }, (_, slice) =>
      createCipheriv(
        'aes-128-ctr',
        Buffer.from(keyOf(seed), 'hex'),
        Buffer.from(ivOf(slice), 'hex'),
      ).update(Buffer.alloc(bytes)),
    ),
  );
