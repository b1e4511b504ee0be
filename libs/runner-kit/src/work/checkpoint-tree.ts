import { inTreeOrder, MAX_ENTRIES, ManifestRefused } from '@vmux/artifacts';
import { ProtocolViolation } from '../errors';
import type { SupervisorClient } from '../supervisor-client';
import type { ScannedEntry } from '../supervisor-tree-answers';
import { LargeTree } from './scan-room';

/**
 * Never part of a checkpoint: the kernel's views, what the driver writes for each sandbox anew, and our own
 * program, socket and spool where they lie inside.
 */
export const EXCLUDED = [
  'proc',
  'sys',
  'dev',
  '.vmux',
  'var/lib/vmux',
  '.dockerenv',
  'etc/hosts',
  'etc/hostname',
  'etc/resolv.conf',
] as const;

export const isExcluded = (path: string): boolean =>
  EXCLUDED.some(
    (excluded) =>
      path.startsWith(excluded) &&
      (path.length === excluded.length || path[excluded.length] === '/'),
  );

const ENTRY_BYTES = 200;

export interface ScannedTree {
  readonly scannedAtNs: bigint;
  readonly sinceNs: bigint;
  readonly entries: readonly ScannedEntry[];
  /** What the listing takes here. */
  readonly bytes: number;
}

/**
 * Everything that was changed in the sandbox, checked to be a tree and to end. Throws `LargeTree` when that
 * takes more than `maxScanBytes`.
 */
export async function scanTree(
  client: SupervisorClient,
  maxScanBytes: number,
  signal: AbortSignal,
): Promise<ScannedTree> {
  const { entries: scanned, ...times } = await client.trees.scan(EXCLUDED, { signal });
  const entries: ScannedEntry[] = [];
  let bytes = 0;
  for await (const some of scanned)
    for (const entry of some) {
      checkPlace(entry, entries.at(-1));
      bytes += bytesOf(entry);
      if (entries.length === MAX_ENTRIES)
        throw new ManifestRefused(`more than ${entries.length} changed files`);
      if (bytes > maxScanBytes) throw new LargeTree(`more than ${entries.length} changed files`);
      entries.push(entry);
    }
  return { ...times, entries, bytes };
}

function checkPlace({ path }: ScannedEntry, last: ScannedEntry | undefined): void {
  if (last && !inTreeOrder(last.path, path))
    throw new ProtocolViolation('SCAN: entries out of order');
  if (isExcluded(path)) throw new ProtocolViolation('SCAN: an entry that was excluded');
}

function bytesOf({ path, target, attributes }: ScannedEntry): number {
  let bytes = ENTRY_BYTES + path.length + target.length;
  for (const { value } of attributes) bytes += value.length + 64;
  return bytes;
}

/** The driver's word on what of the base is gone, in order, each once, nothing beneath another. */
export function whiteoutsOf(removed: readonly string[]): string[] {
  const paths = removed
    .map((path) => path.replace(/^\/+/, ''))
    .filter((path) => path !== '' && !isExcluded(path))
    .sort((a, b) => (inTreeOrder(a, b) ? -1 : 1));
  const kept: string[] = [];
  for (const path of paths) {
    const last = kept.at(-1);
    if (last !== undefined && (path === last || path.startsWith(`${last}/`))) continue;
    kept.push(path);
  }
  return kept;
}
