import { heartbeatOf } from '../../../test/support/fake-runner';
import { Placing } from '../src/application/placing';
import { Runners } from '../src/application/runners';
import { wantedSandbox } from '../src/domain/consequences';
import { isLiving } from '../src/domain/state';
import { checkpointNo, command, hex, key, nativeCheckpoint, report, SPEC } from './domain-makers';
import { lost } from './domain-messages';
import { past, running } from './domain-spec';

const take = command(
  'TakeCheckpoint',
  { checkpointId: checkpointNo(1), name: null },
  { key: key('take') },
);
const archived = report('CheckpointArchived', {
  ...{ checkpointId: checkpointNo(1), artifact: hex('b'), manifestDigest: hex('c') },
  ...{ bytes: 1, newBytes: 1 },
});
const rehydrate = command('RehydrateSession', {
  ...{ checkpointId: checkpointNo(1), provider: null, allowBaseChange: false },
  ...{ force: false, replay: [] },
});

/** A session that waits for a runner, to begin with a checkpoint that ns-1 has in its own form. */
function waiting(isArchived: boolean) {
  const taken = report('CheckpointTaken', { checkpoint: nativeCheckpoint(1, 1) });
  const stored = isArchived ? [archived] : [];
  const { session } = past(...running(), take, taken, ...stored, lost, rehydrate);
  if (!isLiving(session)) throw new Error(`the session is ${session.status}`);
  const wanted = wantedSandbox(session);
  if (!wanted) throw new Error('no sandbox is wanted');
  return { session, wanted };
}

const hearing = (now: () => number, rooms: Readonly<Record<string, number>>) => {
  const runners = new Runners(now);
  for (const [runnerId, room] of Object.entries(rooms)) {
    const heartbeat = heartbeatOf({ runnerId });
    const { maxSandboxes } = heartbeat.capacity;
    const capacity = { ...heartbeat.capacity, sandboxes: maxSandboxes - room };
    runners.hear({ ...heartbeat, capacity });
  }
  return { runners, placing: new Placing(runners, now, -60_000) };
};

describe('Placing a sandbox that begins with a checkpoint', () => {
  it('prefers who has it in its own form, whatever room others have', () => {
    const { session, wanted } = waiting(true);
    const { placing } = hearing(() => 0, { 'ns-0': 10, 'ns-1': 1, 'ns-2': 10 });
    expect(placing.forWanted(session, wanted)).toMatchObject({ runnerId: 'ns-1' });
    // That room is taken now.
    expect(placing.forWanted(session, wanted)).toMatchObject({ runnerId: 'ns-0' });
  });

  it('goes elsewhere with the portable form when the holder is full or not heard', () => {
    const { session, wanted } = waiting(true);
    const full = hearing(() => 0, { 'ns-1': 0, 'ns-2': 5 });
    expect(full.placing.forWanted(session, wanted)).toMatchObject({ runnerId: 'ns-2' });
    let now = 0;
    const silent = hearing(() => now, { 'ns-1': 5 });
    now = 60_000;
    silent.runners.hear(heartbeatOf({ runnerId: 'ns-2' }));
    expect(silent.placing.forWanted(session, wanted)).toMatchObject({ runnerId: 'ns-2' });
  });

  it('waits for the holder while there is no other form', () => {
    const { session, wanted } = waiting(false);
    const without = hearing(() => 0, { 'ns-1': 0, 'ns-2': 5 });
    expect(without.placing.isPossible(session)).toBe(false);
    expect(without.placing.forWanted(session, wanted)).toBeNull();
    const { placing } = hearing(() => 0, { 'ns-1': 1, 'ns-2': 5 });
    expect(placing.isPossible(session)).toBe(true);
    expect(placing.forWanted(session, wanted)).toMatchObject({ runnerId: 'ns-1' });
  });

  it('goes to any runner of the pool whose provider has it, before one of another', async () => {
    const { native, ...rest } = { ...nativeCheckpoint(1, 1), artifact: hex('b') };
    if (!native) throw new Error('it has no native form');
    const checkpoint = { ...rest, native: { ...native, pool: 'mine' } };
    const lineage = { parent: 'web-0a1b', checkpoint, forkId: 'f000000000001' };
    const runners = new Runners(() => 0);
    const rooms = { 'ns-0': ['other', 10], 'ns-1': ['mine', 1], 'ns-2': ['mine', 2] } as const;
    for (const [runnerId, [pool, room]] of Object.entries(rooms)) {
      const heartbeat = heartbeatOf({ runnerId });
      const { maxSandboxes } = heartbeat.capacity;
      runners.hear({
        ...heartbeat,
        providers: heartbeat.providers.map((offer) => ({ ...offer, pool })),
        capacity: { ...heartbeat.capacity, sandboxes: maxSandboxes - room },
      });
    }
    const placing = new Placing(runners, () => 0, -60_000);
    const placed: (string | undefined)[] = [];
    for (const _ of [1, 2, 3, 4])
      placed.push((await placing.forNew({ provider: 'ns', spec: SPEC, lineage }))?.runnerId);
    expect(placed.slice(0, 3).sort()).toEqual(['ns-1', 'ns-2', 'ns-2']);
    expect(placed[3]).toBe('ns-0');
  });

  it('makes a fork where its checkpoint is', async () => {
    const checkpoint = { ...nativeCheckpoint(1, 1), artifact: hex('b') };
    const lineage = { parent: 'web-0a1b', checkpoint, forkId: 'f000000000001' };
    const { placing } = hearing(() => 0, { 'ns-0': 10, 'ns-1': 1 });
    const fork = { provider: 'ns', spec: SPEC, lineage };
    expect(await placing.forNew(fork)).toMatchObject({ runnerId: 'ns-1' });
    expect(await placing.forNew(fork)).toMatchObject({ runnerId: 'ns-0' });
  });
});
