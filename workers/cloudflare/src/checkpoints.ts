import type { EntryClient } from './entry-client';
import type { Bucket, UploadedPart } from './platform';
import type { CheckpointTaken, SandboxName } from './wire';

/** What a session writes to. Everything else is the image's. */
export const DIRECTORIES = ['/workspace', '/root', '/home'] as const;

/** R2 takes parts of one size from 5 MiB on; the last may be smaller. */
const partBytes = 8 * 1024 * 1024;

const keyOf = (ref: string, directory: string): string => `${ref}${directory}.tar.gz`;
const metaOf = (ref: string): string => `${ref}/checkpoint.json`;

interface Meta {
  readonly version: 1;
  readonly name: SandboxName;
  readonly directories: readonly string[];
  readonly takenAtMs: number;
  readonly bytes: number;
}

/** Streams every directory into the bucket; what is there without its last object is no checkpoint. */
export async function takeCheckpoint(
  bucket: Bucket,
  entry: EntryClient,
  boot: string,
  name: SandboxName,
): Promise<CheckpointTaken> {
  const { sessionId, epoch } = name;
  const ref = `checkpoints/${sessionId}/${epoch}/${crypto.randomUUID()}`;
  let bytes = 0;
  for (const directory of DIRECTORIES)
    bytes += await upload(bucket, keyOf(ref, directory), await entry.archive(boot, directory));
  const meta: Meta = {
    version: 1,
    name,
    directories: DIRECTORIES,
    takenAtMs: Date.now(),
    bytes,
  };
  await bucket.put(metaOf(ref), JSON.stringify(meta));
  return { ref, bytes };
}

/** False when there is no such checkpoint. */
export async function hasCheckpoint(bucket: Bucket, ref: string): Promise<boolean> {
  return (await metaAt(bucket, ref)) !== undefined;
}

export async function restoreCheckpoint(
  bucket: Bucket,
  entry: EntryClient,
  boot: string,
  ref: string,
): Promise<void> {
  const meta = await metaAt(bucket, ref);
  if (!meta) throw new Error(`there is no checkpoint ${ref}`);
  for (const directory of meta.directories) {
    const object = await bucket.get(keyOf(ref, directory));
    if (!object) throw new Error(`the checkpoint lacks ${directory}`);
    await entry.unpack(boot, directory, object.body);
  }
}

async function metaAt(bucket: Bucket, ref: string): Promise<Meta | undefined> {
  if (!/^checkpoints\/[a-z0-9-]+\/\d+\/[0-9a-f-]{36}$/.test(ref)) return undefined;
  const object = await bucket.get(metaOf(ref));
  return object ? (JSON.parse(await object.text()) as Meta) : undefined;
}

async function upload(bucket: Bucket, key: string, stream: ReadableStream): Promise<number> {
  const upload = await bucket.createMultipartUpload(key);
  const parts: UploadedPart[] = [];
  const part = new Uint8Array(partBytes);
  let filled = 0;
  let total = 0;
  const flush = async () => {
    parts.push(await upload.uploadPart(parts.length + 1, part.slice(0, filled)));
    total += filled;
    filled = 0;
  };
  try {
    for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) {
      for (let at = 0; at < chunk.length; ) {
        const taken = Math.min(chunk.length - at, partBytes - filled);
        part.set(chunk.subarray(at, at + taken), filled);
        filled += taken;
        at += taken;
        if (filled === partBytes) await flush();
      }
    }
    if (filled > 0 || parts.length === 0) await flush();
    await upload.complete(parts);
    return total;
  } catch (fault) {
    await upload.abort();
    throw fault;
  }
}
