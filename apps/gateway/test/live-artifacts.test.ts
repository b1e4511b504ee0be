import type { EventStore, SubscriptionItem } from '@vmux/event-store';
import { liveArtifacts } from '../src/application/live-artifacts';

const BUNDLE = 'b'.repeat(64);

function historyOf(...items: readonly object[]): EventStore {
  const subscribe = async function* () {
    yield* items as readonly SubscriptionItem[];
  };
  return { subscribe } as never;
}

describe('What sessions refer to', () => {
  const created = {
    kind: 'event',
    event: { stream: 'session-a-0a1b', type: 'SessionCreated', data: { spec: { bundle: BUNDLE } } },
  };
  const { signal } = new AbortController();

  it('is known once every history was read', async () => {
    const live = await liveArtifacts(historyOf(created, { kind: 'caughtUp' }), signal);
    expect(live).toEqual({ checkpoints: new Set(), bundles: new Set([BUNDLE]) });
  });

  it('is not known when the reading ends before', async () => {
    await expect(liveArtifacts(historyOf(created), signal)).rejects.toThrow('to their end');
  });
});
