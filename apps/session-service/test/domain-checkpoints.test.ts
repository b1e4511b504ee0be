import type { Report } from '@vmux/events';
import { react } from '../src/domain/react';
import {
  checkpointNo,
  command,
  hex,
  key,
  nativeCheckpoint,
  placementOn,
  report,
  systemCommand,
} from './domain-makers';
import { createSession, type Given, given, past, running } from './domain-spec';

const take = (number: number) =>
  command(
    'TakeCheckpoint',
    { checkpointId: checkpointNo(number), name: null },
    { key: key(`take-${number}`) },
  );
const taken = (number: number) =>
  report('CheckpointTaken', { checkpoint: nativeCheckpoint(number, 1) });
const portable = { artifact: hex('b'), manifestDigest: hex('c'), bytes: 20, newBytes: 5 };
const archived = (number: number, change: Partial<Report> = {}) =>
  report('CheckpointArchived', { checkpointId: checkpointNo(number), ...portable }, change);
const notArchived = (number: number) =>
  report('ArchiveFailed', { checkpointId: checkpointNo(number), message: 'no store' });
const move = command('MoveSession', {
  provider: 'docker',
  checkpointId: checkpointNo(9),
  allowBaseChange: false,
});
const place = (provider = 'docker') =>
  systemCommand('PlaceSandbox', {}, { placement: placementOn(provider) });
const stop = command('StopSession', { graceMs: 0, force: false });

describe('A checkpoint in the form of its provider', () => {
  it('is taken at once, and its portable form is owed by the runner that has it', () => {
    given(...running(), take(1))
      .when(taken(1))
      .thenTypes('CheckpointTaken');
    given(...running(), take(1), taken(1)).thenOwes('ArchiveCheckpoint ns-1');
    given(...running(), take(1), taken(1))
      .when(archived(1))
      .thenTypes('CheckpointArchived');
    const after = given(...running(), take(1), taken(1), archived(1));
    after.thenOwes();
    expect(after.session).toMatchObject({
      checkpoints: [{ ...portable, native: { ref: 'snapshot-1' } }],
      unarchived: [],
    });
  });

  it('that is taken again by an order that came late is refused, so that nothing is held for it', () => {
    given(...running(), take(1), taken(1))
      .when(taken(1))
      .thenRefused('out_of_order');
    const moving = report('CheckpointTaken', { checkpoint: nativeCheckpoint(9, 1) });
    given(...running(), move, moving)
      .when(moving)
      .thenNothing();
  });

  it('is archived once, by the runner that has it and by no other', () => {
    given(...running(), take(1), taken(1), archived(1))
      .when(archived(1))
      .thenNothing();
    given(...running(), take(1), taken(1))
      .when(archived(1, { runnerId: 'docker-1' }))
      .thenRefused('wrong_runner');
    given(...running(), take(1), taken(1))
      .when(archived(2))
      .thenRefused('checkpoint_not_found');
  });

  it('is archived after its sandbox is gone, and after its session has stopped', () => {
    const stopped = [...running(), take(1), taken(1), stop, report('SandboxReleased', {})];
    given(...stopped).thenOwes('ArchiveCheckpoint ns-1');
    given(...stopped)
      .when(archived(1))
      .thenTypes('CheckpointArchived');
  });

  it('stays as it is when its portable form cannot be made', () => {
    given(...running(), take(1), taken(1))
      .when(notArchived(1))
      .thenTypes('ArchiveFailed');
    const after = given(...running(), take(1), taken(1), notArchived(1));
    after.thenOwes();
    expect(after.session).toMatchObject({ checkpoints: [{ artifact: null }] });
  });

  it('holds a move to another provider until its portable form is there', () => {
    const moving = [...running(), move, taken(9)];
    given(...moving).thenOwes('ArchiveCheckpoint ns-1');
    given(...moving)
      .when(place())
      .thenNothing();
    given(...moving, archived(9))
      .when(place())
      .thenTypes('SandboxRequested');
    given(...moving, notArchived(9))
      .when(place())
      .thenTypes('SandboxRequested');
  });

  it('holds a fork to another provider, and one to its own not at all', () => {
    const fork = (provider: string | null) =>
      command('ForkSession', {
        forkId: 'f000000000001',
        checkpointId: checkpointNo(1),
        newCheckpointId: checkpointNo(8),
        name: 'web',
        count: 2,
        provider,
      });
    const owed = (...happened: readonly Given[]) => react(past(...happened).session, 0).forks;
    const before = [...running(), take(1), taken(1)];
    expect(owed(...before, fork(null))).toHaveLength(2);
    expect(owed(...before, fork('docker'))).toHaveLength(0);
    expect(owed(...before, fork('docker'), archived(1))).toMatchObject([
      { checkpoint: portable },
      { checkpoint: portable },
    ]);
  });

  it('is archived for a child that began with it, too: its parent may be deleted before', () => {
    const lineage = {
      parent: 'api-0000',
      checkpoint: nativeCheckpoint(1, 4),
      forkId: 'f000000000001',
    };
    const child = createSession({ lineage });
    given(child).thenOwes('CreateSandbox ns-1', 'ArchiveCheckpoint ns-1');
    const kept = given(child, archived(1, { epoch: 4, instance: 'archive' }));
    kept.thenOwes('CreateSandbox ns-1');
    expect(kept.session).toMatchObject({
      ...{ checkpoints: [portable], unarchived: [] },
      pending: { restore: { artifact: null } },
    });
    const stored = { ...nativeCheckpoint(1, 4), ...portable };
    given(createSession({ lineage: { ...lineage, checkpoint: stored } })).thenOwes(
      'CreateSandbox ns-1',
    );
  });
});

describe('A move that nobody takes', () => {
  const fire = (at: number) =>
    systemCommand(
      'FireDeadline',
      { kind: 'unplaced', execId: null, checkpointId: checkpointNo(7) },
      { at },
    );
  const stored = [...running(), move, taken(9), archived(9, { at: 5_000 })];

  it('is given up after a while, and its source goes on', () => {
    given(...stored)
      .when(fire(64_999))
      .thenNothing();
    given(...stored)
      .when(fire(65_000))
      .thenTypes('MoveFailed');
    given(...stored, fire(65_000)).thenOwes('ResumeSandbox ns-1');
  });

  it('is not given up while its portable form is made, or once a runner has it', () => {
    given(...running(), move, taken(9))
      .when(fire(900_000))
      .thenNothing();
    given(...stored, place())
      .when(fire(900_000))
      .thenNothing();
  });
});

describe('A sandbox that its provider ends', () => {
  const ends = (endsAt: number) => report('LifetimeKnown', { endsAt });
  const fire = (at: number) =>
    systemCommand(
      'FireDeadline',
      { kind: 'provider_limit', execId: null, checkpointId: checkpointNo(7) },
      { at },
    );
  const notTaken = report('CheckpointFailed', {
    checkpointId: checkpointNo(7),
    message: 'disk full',
  });

  it('is stored and released before that, however busy it is', () => {
    given(...running(), ends(3_600_000))
      .when(fire(3_299_999))
      .thenNothing();
    given(...running(), ends(3_600_000))
      .when(fire(3_300_000))
      .thenTypes('ReleaseRequested', 'CheckpointRequested');
    given(...running(), ends(60_000))
      .when(fire(30_000))
      .thenTypes('ReleaseRequested', 'CheckpointRequested');
  });

  it('is tried again, and not at once, when that fails', () => {
    const failed = [...running(), ends(3_600_000), fire(3_300_000), notTaken];
    given(...failed)
      .when(fire(3_329_999))
      .thenNothing();
    given(...failed)
      .when(fire(3_330_000))
      .thenTypes('ReleaseRequested', 'CheckpointRequested');
  });

  it('is left alone where there are no checkpoints, and told of once', () => {
    given(...running({}, ['suspend']), ends(60_000))
      .when(fire(60_000))
      .thenNothing();
    given(...running(), ends(60_000))
      .when(ends(60_000))
      .thenNothing();
    given(...running(), ends(60_000))
      .when(ends(90_000))
      .thenNothing();
  });
});

describe('A runner that keeps something for a session', () => {
  const held = report('CheckpointsHeld', {}, { runnerId: 'docker-1', instance: 'leftovers' });

  it('is told when the session was deleted, and by nothing else that it need not', () => {
    given(...running())
      .when(held)
      .thenNothing();
    given(...running(), stop)
      .when(held)
      .thenNothing();
    given(...running(), command('DeleteSession', { force: true }), report('SandboxReleased', {}))
      .when(held)
      .thenRefused('session_deleted');
    given().when(held).thenRefused('session_not_found');
  });
});
