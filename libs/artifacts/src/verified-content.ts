import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import type { Digest } from './digest';
import { ArtifactTooLarge, DigestMismatch, type PutOptions } from './port';

/** Writes what comes to a new file, synced, if it has that digest and is not too large. */
export async function receive(
  path: string,
  digest: Digest,
  source: AsyncIterable<Uint8Array>,
  { maxBytes, signal }: PutOptions,
): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  try {
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of source) {
      signal?.throwIfAborted();
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new ArtifactTooLarge(maxBytes);
      hash.update(chunk);
      await writeAll(file, chunk);
    }
    const actual = hash.digest('hex');
    if (actual !== digest) throw new DigestMismatch(digest, actual);
    await file.sync();
    return bytes;
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let written = 0; written < chunk.byteLength; ) {
    written += (await file.write(chunk, written)).bytesWritten;
  }
}

/** The same bytes; fails at their end when they have another digest. */
export async function* verified(
  source: AsyncIterable<Buffer>,
  digest: Digest,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  for await (const chunk of source) {
    hash.update(chunk);
    yield chunk;
  }
  const actual = hash.digest('hex');
  if (actual !== digest) throw new DigestMismatch(digest, actual);
}
