import { createHash } from 'node:crypto';
import { VmuxError } from './errors';
import { pause, pauseBefore } from './pause';

export interface UploadOptions {
  /** Stops it. What has come stays for a while, for whoever goes on. */
  readonly signal?: AbortSignal;
  /** How much is sent; less than before when an upload that was cut goes on with what has come. */
  readonly onProgress?: (sentBytes: number) => void;
}

/** What it needs of a connection to a gateway. */
interface Caller {
  readonly retryForMs: number;
  call<T>(method: string, path: string, request: object): Promise<T>;
  once<T>(method: string, path: string, request: object): Promise<T>;
}

const pieceBytes = 64 * 1024;
/** From this size on it is worth asking first whether an earlier upload of it was cut. */
const worthAsking = 8 * 1024 * 1024;

/** Uploads bytes under their digest, over as many connections as it takes: each goes on with what has come. */
export async function upload(
  vmux: Caller,
  bytes: Uint8Array,
  { signal, onProgress = () => undefined }: UploadOptions,
): Promise<string> {
  const digest = createHash('sha256').update(bytes).digest('hex');
  const path = `/v1/bundles/${digest}`;
  const total = bytes.length;
  if (total === 0) {
    await vmux.call('PUT', path, { body: bytes, signal });
    return digest;
  }
  const arrived = async (): Promise<number> => {
    const { stored, offset } = await vmux.call<Told>('GET', `${path}/upload`, { signal });
    // Of what is all there, but not stored, the last byte is sent once more.
    return stored ? total : Math.min(offset, total - 1);
  };
  let from = total < worthAsking ? 0 : await arrived();
  let farthest = from;
  let failingSince = Date.now();
  let isDoubted = false;
  for (let attempt = 0; from < total; attempt += 1) {
    const began = from;
    const headers = { 'content-range': `bytes ${began}-${total - 1}/${total}` };
    const body = () => inPieces(bytes, began, onProgress);
    try {
      await vmux.once('PUT', path, { body, headers, signal });
      return digest;
    } catch (fault) {
      signal?.throwIfAborted();
      if (VmuxError.is(fault, 'digest_mismatch') && began > 0 && !isDoubted) {
        // A machine that crashed may have lost some of what had come: it is gone now, and all is sent again.
        isDoubted = true;
        from = 0;
        continue;
      }
      const passes = fault instanceof VmuxError && fault.retryable;
      if (!passes && !VmuxError.is(fault, 'upload_gap')) throw fault;
      if (Date.now() - failingSince >= vmux.retryForMs) throw fault;
    }
    await pause(pauseBefore(attempt), signal);
    from = await arrived();
    if (from <= farthest) continue;
    farthest = from;
    failingSince = Date.now();
    attempt = 0;
  }
  onProgress(total);
  return digest;
}

interface Told {
  readonly stored: boolean;
  readonly offset: number;
}

async function* inPieces(
  bytes: Uint8Array,
  from: number,
  onProgress: (sentBytes: number) => void,
): AsyncGenerator<Uint8Array> {
  for (let at = from; at < bytes.length; at += pieceBytes) {
    onProgress(at);
    yield bytes.subarray(at, at + pieceBytes);
  }
  onProgress(bytes.length);
}
