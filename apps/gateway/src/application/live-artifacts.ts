import { type Digest, isDigest } from '@vmux/artifacts';
import { type EventStore, StoreUnavailable } from '@vmux/event-store';
import { sessionStream } from '@vmux/events';

const PREFIX = sessionStream('');

/** What the histories of all sessions that are not deleted refer to, read from the first event on. */
export async function liveArtifacts(
  store: EventStore,
  signal: AbortSignal,
): Promise<{ readonly checkpoints: Set<Digest>; readonly bundles: Set<Digest> }> {
  const bySession = new Map<string, { checkpoints: Set<Digest>; bundles: Set<Digest> }>();
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  let isWhole = false;
  for await (const item of store.subscribe({ prefixes: [PREFIX] }, either)) {
    isWhole = item.kind === 'caughtUp';
    if (isWhole) break;
    if (item.kind !== 'event') continue;
    const { stream, type, data } = item.event;
    if (type === 'SessionDeleted') {
      bySession.delete(stream);
      continue;
    }
    const named = bySession.get(stream) ?? { checkpoints: new Set(), bundles: new Set() };
    bySession.set(stream, named);
    addNamedIn(data, named);
  }
  ending.abort();
  signal.throwIfAborted();
  // What was not read may refer to anything.
  if (!isWhole) throw new StoreUnavailable('the histories were not read to their end');
  const all = [...bySession.values()];
  return {
    checkpoints: new Set(all.flatMap(({ checkpoints }) => [...checkpoints])),
    bundles: new Set(all.flatMap(({ bundles }) => [...bundles])),
  };
}

/** By the fields' names, wherever they stand: an event that this program does not know keeps what it names. */
function addNamedIn(
  value: unknown,
  into: { readonly checkpoints: Set<Digest>; readonly bundles: Set<Digest> },
): void {
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value)) return;
  for (const [name, inside] of Object.entries(value)) {
    if (typeof inside === 'string' && isDigest(inside)) {
      if (name === 'artifact') into.checkpoints.add(inside);
      if (name === 'bundle') into.bundles.add(inside);
    } else addNamedIn(inside, into);
  }
}
