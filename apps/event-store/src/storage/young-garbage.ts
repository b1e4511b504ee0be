import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

type Collect = (options: { readonly type: 'minor' }) => void;

/** Below what the engine takes for memory pressure, with room for what else is allocated meanwhile. */
const COLLECT_AFTER_BYTES = 1024 * 1024;

/**
 * The buffers of appends are short-lived but lie outside the engine's heap, and the engine answers every
 * 64 MiB of those by a full collection, concurrent marking included: more CPU than the appends take
 * themselves. A scavenge of the young objects frees the same buffers for a small part of that.
 */
export class YoungGarbage {
  private bytes = 0;
  private readonly collect = scavenge();

  made(bytes: number): void {
    this.bytes += bytes;
    if (this.bytes < COLLECT_AFTER_BYTES) return;
    this.bytes = 0;
    this.collect?.({ type: 'minor' });
  }
}

function scavenge(): Collect | undefined {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('globalThis.gc');
  return typeof collect === 'function' ? (collect as Collect) : undefined;
}
