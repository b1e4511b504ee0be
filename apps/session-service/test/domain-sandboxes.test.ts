import { deriveExecId, fact, type ReplayItem, type Report } from '@vmux/events';
import {
  checkpoint,
  checkpointNo,
  command,
  EXEC,
  exec,
  hex,
  key,
  ON_NS,
  placementOn,
  report,
  systemCommand,
} from './domain-makers';
import { created, given, issue, issued, past, requested, running } from './domain-spec';

const lost = report('SandboxLost', { evidence: { kind: 'probe', message: 'gone' } });
const ready = (epoch: number, restoredDigest: string | null = null, runnerId = 'ns-1') =>
  report(
    'SandboxReady',
    { base: null, restoredDigest },
    { epoch, instance: `i-${epoch}`, runnerId },
  );
const failed = (epoch: number, retryable: boolean) =>
  report('SandboxFailed', { message: 'no room', retryable }, { epoch, instance: `i-${epoch}` });
const place = (placement = ON_NS) => systemCommand('PlaceSandbox', {}, { placement });
const suspend = command('SuspendSession', {});
const resume = command('ResumeSession', {});
const suspended = (request: number) => report('SandboxSuspended', { request });
const resumed = (request: number) => report('SandboxResumed', { request });
const take = (number: number) =>
  command(
    'TakeCheckpoint',
    { checkpointId: checkpointNo(number), name: null },
    { key: key(`take-${number}`) },
  );
const taken = (number: number, epoch = 1): Report =>
  report(
    'CheckpointTaken',
    { checkpoint: checkpoint(number, epoch) },
    { epoch, instance: `i-${epoch}` },
  );
const notTaken = (number: number) =>
  report('CheckpointFailed', { checkpointId: checkpointNo(number), message: 'disk full' });
const rehydrate = (force = false, replay: readonly ReplayItem[] = []) =>
  command('RehydrateSession', {
    checkpointId: null,
    provider: null,
    allowBaseChange: false,
    force,
    replay,
  });
const rollback = (number: number) =>
  command('RollbackSession', { checkpointId: checkpointNo(number), allowBaseChange: false });
const move = (provider = 'docker') =>
  command('MoveSession', { provider, checkpointId: checkpointNo(9), allowBaseChange: false });
const fork = (checkpointId: string | null = null) =>
  command('ForkSession', {
    forkId: 'f000000000001',
    checkpointId,
    newCheckpointId: checkpointNo(8),
    name: 'web',
    count: 2,
    provider: null,
  });

describe('A sandbox that fails to start', () => {
  it('is asked for again of another runner, a few times', () => {
    given(created(), requested()).when(failed(1, true)).thenTypes('SandboxFailed');
    given(created(), requested(), failed(1, true))
      .when(place())
      .thenHappens(
        fact('SandboxRequested', {
          at: 1_000,
          epoch: 2,
          ...ON_NS,
          purpose: 'create',
          restore: null,
          allowBaseChange: false,
        }),
      );
    given(created(), requested(), failed(1, true), place(), failed(2, true), place())
      .when(failed(3, true))
      .thenTypes('SandboxFailed', 'SessionFailed');
  });

  it('for good fails the session, and what waited never starts', () => {
    given(created(), requested(), issue(1))
      .when(failed(1, false))
      .thenTypes('SandboxFailed', 'ExecExited', 'SessionFailed');
  });

  it('is not placed where nobody asked for it', () => {
    given(created(), requested(), failed(1, true))
      .when(place(placementOn('docker')))
      .thenNothing();
    given(...running())
      .when(place())
      .thenNothing();
  });

  it('cannot have started', () => {
    given(...running())
      .when(failed(1, false))
      .thenRefused('out_of_order');
  });
});

describe('Unreachable', () => {
  const declared = (since: number, epoch = 1) =>
    systemCommand('DeclareLost', { epoch, evidence: { kind: 'unreachable', since } });

  it('is not lost, unless the policy says after how long', () => {
    given(...running())
      .when(declared(0))
      .thenRefused('too_early');
    given(...running({ lostAfterMs: 1_001 }))
      .when(declared(0))
      .thenRefused('too_early');
    given(...running({ lostAfterMs: 1_000 }))
      .when(declared(0))
      .thenTypes('SandboxLost');
  });

  it('is not for a runner to say', () => {
    given(...running())
      .when(report('SandboxLost', { evidence: { kind: 'unreachable', since: 0 } }))
      .thenRefused('out_of_order');
  });

  it('leaves a sandbox that is to be destroyed when its runner comes back', () => {
    given(...running({ lostAfterMs: 1 }), declared(0)).thenOwes('DestroySandbox ns-1');
    given(...running({ lostAfterMs: 1 }), declared(0))
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased');
    given(...running({ lostAfterMs: 1 }), declared(0), report('SandboxReleased', {})).thenOwes();
    given(...running(), lost).thenOwes();
  });

  it('before it ever started means another runner', () => {
    given(created({ lostAfterMs: 1 }), requested())
      .when(declared(0))
      .thenTypes('SandboxFailed');
    given(created({ lostAfterMs: 1 }), requested(), declared(0)).thenOwes('DestroySandbox ns-1');
  });

  it('can be decided by the owner', () => {
    given(...running(), issued(1))
      .when({ ...rehydrate(true), placement: ON_NS })
      .thenTypes('SandboxLost', 'ExecOutcomeUnknown', 'RehydrateRequested', 'SandboxRequested');
    given(...running())
      .when(rehydrate(false))
      .thenRefused('session_live');
  });
});

describe('A log that was closed before its sandbox was given up', () => {
  const finish = systemCommand('DeclareLost', { epoch: 1, evidence: { kind: 'log_closed' } });

  it('is reason enough to give it up', () => {
    given(...running())
      .withLog({ epoch: 1, closed: true })
      .when(finish)
      .thenTypes('SandboxLost');
    given(...running())
      .withLog({ epoch: 1, closed: false })
      .when(finish)
      .thenNothing();
  });
});

describe('Another runner', () => {
  const reassign = systemCommand('ReassignRunner', { epoch: 1, instance: 'i-1', to: 'ns-2' });

  it('takes a sandbox over, and the one before is told to let go', () => {
    given(...running())
      .when(reassign)
      .thenTypes('RunnerReassigned');
    given(...running(), reassign).thenOwes('AdoptSandbox ns-2');
    given(...running(), reassign)
      .when(lost)
      .thenRefused('wrong_runner');
    given(...running(), reassign)
      .when(ready(1, null, 'ns-2'))
      .thenTypes('SandboxAdopted');
    given(...running(), reassign, ready(1, null, 'ns-2')).thenOwes();
  });
});

describe('Suspending', () => {
  const asleep = [...running(), suspend, suspended(3)];

  it('is asked of the runner and done when it says so', () => {
    given(...running())
      .when(suspend)
      .thenTypes('SuspendRequested');
    given(...running(), suspend).thenOwes('SuspendSandbox ns-1');
    given(...running(), suspend)
      .when(suspended(3))
      .thenTypes('SandboxSuspended');
    given(...asleep).thenOwes();
  });

  it('is refused where the provider cannot', () => {
    given(...running({}, ['checkpoint']))
      .when(suspend)
      .thenRefused('not_supported');
  });

  it('that fails leaves the session running, with what waited', () => {
    given(...running(), suspend, issue(1))
      .when(report('SuspendFailed', { request: 3, message: 'no' }))
      .thenTypes('SuspendFailed', 'ExecDispatched');
  });

  it('is not done by a late answer to an earlier request', () => {
    given(...asleep, resume, resumed(5), { ...suspend, key: key('again') })
      .when(suspended(3))
      .thenNothing();
  });

  it('opens no epoch: what ran goes on, and resuming wakes what waits', () => {
    given(...running(), issued(1), suspend, suspended(4)).thenOwes();
    given(...asleep)
      .when(issue(1))
      .thenTypes('ExecIssued', 'ResumeRequested');
    given(...asleep, issue(1)).thenOwes('ResumeSandbox ns-1');
    given(...asleep, issue(1))
      .when(resumed(6))
      .thenTypes('SandboxResumed', 'ExecDispatched');
  });

  it('while work arrives is followed by resuming', () => {
    given(...running(), suspend, issue(1))
      .when(suspended(3))
      .thenTypes('SandboxSuspended', 'ResumeRequested');
  });

  it('ends in nothing that waits for ever when resuming fails', () => {
    given(...asleep, issue(1))
      .when(report('ResumeFailed', { request: 6, message: 'no memory' }))
      .thenTypes('ResumeFailed', 'ExecExited');
  });

  it('is undone by attaching and previews, not by looking', () => {
    const wake = command('WakeSession', { cause: 'preview' });
    given(...asleep)
      .when(wake)
      .thenTypes('ResumeRequested');
    given(...asleep)
      .when(command('NoteActivity', { activity: 'files' }, { at: 10_000_000 }))
      .thenTypes('ActivityObserved');
  });

  it('is one request at a time', () => {
    given(...running(), suspend)
      .when(take(1))
      .thenRefused('operation_underway', {
        underway: 'suspend',
      });
    given(...running(), take(1))
      .when(suspend)
      .thenRefused('operation_underway');
  });
});

describe('A checkpoint', () => {
  it('is asked of the runner and kept when it is taken', () => {
    given(...running())
      .when(take(1))
      .thenTypes('CheckpointRequested');
    given(...running(), take(1)).thenOwes('TakeCheckpoint ns-1');
    given(...running(), take(1))
      .when(taken(1))
      .thenTypes('CheckpointTaken');
    given(...running(), take(1), taken(1))
      .when(taken(1))
      .thenNothing();
    given(...running(), take(1), taken(1)).thenOwes();
    given(...running(), take(1))
      .when(notTaken(1))
      .thenTypes('CheckpointFailed');
  });

  it('that nobody asked for is refused', () => {
    given(...running())
      .when(taken(1))
      .thenRefused('checkpoint_not_found');
    given(...running(), take(1))
      .when(notTaken(2))
      .thenNothing();
  });

  it('does not keep work from starting', () => {
    given(...running(), take(1), issue(1)).thenOwes('TakeCheckpoint ns-1', 'StartExec ns-1');
  });

  it('fails with its sandbox', () => {
    given(...running(), take(1))
      .when(lost)
      .thenTypes('SandboxLost', 'CheckpointFailed');
  });
});

describe('Rehydrating', () => {
  const saved = [...running(), take(1), taken(1), lost];

  it('restores the last checkpoint into the next epoch', () => {
    const after = given(...saved)
      .when({ ...rehydrate(), placement: ON_NS })
      .thenTypes('RehydrateRequested', 'SandboxRequested');
    expect(after.history.at(-1)?.event.data).toMatchObject({
      epoch: 2,
      purpose: 'rehydrate',
      restore: checkpoint(1, 1),
    });
  });

  it('takes only a sandbox with the files of the checkpoint', () => {
    const restoring = [...saved, { ...rehydrate(), placement: ON_NS }];
    given(...restoring)
      .when(ready(2, hex('1')))
      .thenTypes('SandboxStarted');
    given(...restoring)
      .when(ready(2, hex('7')))
      .thenTypes('SandboxFailed', 'RestoreFailed');
    given(...restoring, ready(2, hex('7'))).thenOwes('DestroySandbox ns-1');
  });

  it('that fails leaves the session lost, and is not tried again by itself', () => {
    const broken = [...saved, issue(1, { placement: ON_NS }), failed(2, false)];
    given(...saved, issue(1, { placement: ON_NS }))
      .when(failed(2, false))
      .thenTypes('SandboxFailed', 'RestoreFailed', 'ExecExited');
    given(...broken)
      .when(place())
      .thenNothing();
    given(...broken)
      .when(issue(2))
      .thenTypes('ExecIssued', 'RehydrateRequested');
  });

  it('by policy is not tried again and again when it fails', () => {
    given(...running({ rehydrate: 'immediately' }), lost, place())
      .when(failed(2, false))
      .thenTypes('SandboxFailed', 'RestoreFailed');
  });

  it('says so when there was no checkpoint to start from', () => {
    const after = given(...running(), lost)
      .when(rehydrate())
      .thenTypes('RehydrateRequested');
    expect(after.history.at(-1)?.event.data).toMatchObject({ checkpointId: null });
  });
});

describe('Replaying', () => {
  const item = (number: number, code = 0): ReplayItem => ({
    execId: exec(number),
    spec: EXEC,
    outcome: { kind: 'exited', code },
  });
  const rerunOf = (number: number) => deriveExecId('web-0a1b', 'replay', '2', String(number - 1));
  const exited = (number: number, code: number) =>
    report(
      'ExecExited',
      {
        execId: rerunOf(number),
        outcome: { kind: 'exited', code },
        sizes: { stdout: 0, stderr: 0, pty: 0 },
        usage: null,
      },
      { epoch: 2, instance: 'i-2' },
    );
  const replaying = [
    ...running(),
    lost,
    { ...rehydrate(false, [item(1), item(2, 3)]), placement: ON_NS },
    ready(2),
  ];

  it('runs the first exec again as a new one that names it, and lets other work wait', () => {
    const after = given(...running(), lost, {
      ...rehydrate(false, [item(1), item(2, 3)]),
      placement: ON_NS,
    })
      .when(ready(2))
      .thenTypes('SandboxStarted', 'ExecIssued');
    expect(after.history.at(-1)?.event.data).toMatchObject({
      execId: rerunOf(1),
      epoch: 2,
      follows: exec(1),
      spec: { purpose: 'replay' },
    });
    given(...replaying, issue(9)).thenOwes('StartExec ns-1');
  });

  it('goes on as long as each ends as it did, and then lets other work start', () => {
    given(...replaying)
      .when(exited(1, 0))
      .thenTypes('ExecExited', 'ExecIssued');
    given(...replaying, exited(1, 0), issue(9))
      .when(exited(2, 3))
      .thenTypes('ExecExited', 'ReplayFinished', 'ExecDispatched');
  });

  it('stops at the first that ends otherwise, and says so', () => {
    const after = given(...replaying)
      .when(exited(1, 1))
      .thenTypes('ExecExited', 'ReplayStopped');
    expect(after.history.at(-1)?.event.data).toMatchObject({
      follows: exec(1),
      expected: { kind: 'exited', code: 0 },
      outcome: { kind: 'exited', code: 1 },
    });
  });

  it('is not continued in another sandbox', () => {
    given(...replaying)
      .when({ ...lost, epoch: 2, instance: 'i-2' })
      .thenTypes('SandboxLost', 'ExecOutcomeUnknown', 'ReplayStopped');
  });

  it('is one of the things that are underway', () => {
    given(...replaying)
      .when(suspend)
      .thenRefused('operation_underway', { underway: 'replay' });
  });
});

describe('Rolling back', () => {
  const saved = [...running(), take(1), taken(1), take(2), taken(2), issued(1)];

  it('opens an epoch next to the current one, on the same runner', () => {
    given(...saved)
      .when(rollback(1))
      .thenTypes('RollbackRequested', 'SandboxRequested');
    given(...saved, rollback(1)).thenOwes('CreateSandbox ns-1', 'StartExec ns-1');
  });

  it('ends what ran in the current one, which is then destroyed', () => {
    given(...saved, rollback(1))
      .when(ready(2, hex('1')))
      .thenTypes('ExecOutcomeUnknown', 'SandboxStarted', 'RolledBack');
    given(...saved, rollback(1), ready(2, hex('1'))).thenOwes('DestroySandbox ns-1');
  });

  it('that fails activates nothing: the current one goes on, with what waited', () => {
    given(...saved, rollback(1), issue(2))
      .when(failed(2, false))
      .thenTypes('SandboxFailed', 'RestoreFailed', 'ExecDispatched');
  });

  it('makes its checkpoint the one to start from after a loss', () => {
    const back = past(...saved, rollback(1), ready(2, hex('1')));
    expect(back.session).toMatchObject({
      checkpoints: [{ checkpointId: checkpointNo(2) }, { checkpointId: checkpointNo(1) }],
    });
  });

  it('to an unknown checkpoint is refused', () => {
    given(...saved)
      .when(rollback(3))
      .thenRefused('checkpoint_not_found');
  });
});

describe('Moving', () => {
  const onDocker = placementOn('docker');
  const frozen = [...running(), issued(1), move(), taken(9)];
  const restoring = [...frozen, place(onDocker)];

  it('freezes the source with a checkpoint and queues new work', () => {
    given(...running())
      .when(move())
      .thenTypes('MoveRequested', 'CheckpointRequested');
    given(...running(), move(), issue(2)).thenOwes('TakeCheckpoint ns-1');
    given(...frozen, issue(2)).thenOwes();
  });

  it('restores on the target as the pending epoch', () => {
    given(...frozen)
      .when(place(ON_NS))
      .thenNothing();
    given(...frozen)
      .when(place(onDocker))
      .thenTypes('SandboxRequested');
    given(...restoring).thenOwes('CreateSandbox docker-1');
  });

  it('ends with the work that waited on the target, and the source destroyed', () => {
    const arrived = ready(2, hex('9'), 'docker-1');
    given(...restoring, issue(2))
      .when(arrived)
      .thenTypes('ExecOutcomeUnknown', 'SandboxStarted', 'Moved', 'ExecDispatched');
    given(...restoring, arrived).thenOwes('DestroySandbox ns-1');
    expect(past(...restoring, arrived).session).toMatchObject({ provider: 'docker' });
  });

  it('that fails on the target thaws the source, which goes on', () => {
    const back = { ...failed(2, true), runnerId: 'docker-1' };
    const after = given(...restoring, issue(2))
      .when(back)
      .thenTypes('SandboxFailed', 'MoveFailed');
    const request = after.session.revision;
    given(...restoring, issue(2), back).thenOwes('ResumeSandbox ns-1');
    given(...restoring, issue(2), back)
      .when(resumed(request))
      .thenTypes('SandboxResumed', 'ExecDispatched');
  });

  it('that fails on the source is over', () => {
    given(...running(), move(), issue(2))
      .when(notTaken(9))
      .thenTypes('CheckpointFailed', 'MoveFailed', 'ExecDispatched');
  });

  it('survives the loss of a source that was already stored', () => {
    given(...restoring)
      .when(lost)
      .thenTypes('SandboxLost', 'ExecOutcomeUnknown');
    given(...restoring, lost)
      .when(ready(2, hex('9'), 'docker-1'))
      .thenTypes('SandboxStarted', 'Moved');
    given(...running(), move())
      .when(lost)
      .thenTypes('SandboxLost', 'CheckpointFailed', 'MoveFailed');
  });

  it('to where it is has no point', () => {
    given(...running())
      .when(move('ns'))
      .thenRefused('nothing_to_do');
  });
});

describe('Forking', () => {
  const record = (index: number) =>
    systemCommand('RecordFork', { forkId: 'f000000000001', index, child: `web-000${index}` });

  it('takes a checkpoint of a running session first, and leaves it running', () => {
    given(...running())
      .when(fork())
      .thenTypes('ForkRequested', 'CheckpointRequested');
    given(...running(), fork(), issue(1)).thenOwes('TakeCheckpoint ns-1', 'StartExec ns-1');
  });

  it('of a checkpoint needs no sandbox', () => {
    const saved = [...running(), take(1), taken(1), lost];
    given(...saved)
      .when(fork())
      .thenTypes('ForkRequested');
    given(...saved)
      .when(fork(checkpointNo(1)))
      .thenTypes('ForkRequested');
    given(...running(), lost)
      .when(fork())
      .thenRefused('checkpoint_not_found');
  });

  it('records each child once', () => {
    const forking = [...running(), fork(), taken(8)];
    given(...forking)
      .when(record(1))
      .thenTypes('Forked');
    given(...forking, record(1))
      .when(record(1))
      .thenNothing();
    given(...forking, record(1), record(0))
      .when(record(0))
      .thenNothing();
  });

  it('starts the child from the checkpoint', () => {
    const lineage = { parent: 'api-0000', checkpoint: checkpoint(1, 1), forkId: 'f000000000001' };
    const child = command(
      'CreateSession',
      { name: 'web', attempt: 0, provider: 'ns', spec: specOf(), lineage },
      { placement: ON_NS },
    );
    const after = given().when(child).thenTypes('SessionCreated', 'SandboxRequested');
    expect(after.history[1]?.event.data).toMatchObject({ restore: checkpoint(1, 1) });
    given(child)
      .when(ready(1, hex('0')))
      .thenTypes('SandboxFailed', 'SessionFailed');
    given(child)
      .when(ready(1, hex('1')))
      .thenTypes('SandboxStarted');
  });

  const specOf = () => {
    const [first] = running();
    if (first?.type !== 'SessionCreated') throw new Error('a history begins with SessionCreated');
    return first.data.spec;
  };
});

describe('Deadlines', () => {
  const fire = (
    kind: 'idle' | 'keep' | 'max_runtime' | 'runtime_warning' | 'exec_timeout' | 'checkpoint',
    at: number,
    execId: string | null = null,
  ) => systemCommand('FireDeadline', { kind, execId, checkpointId: checkpointNo(7) }, { at });

  it('suspend an idle session where the provider can', () => {
    given(...running({ idleTimeoutMs: 5_000 }))
      .when(fire('idle', 4_999))
      .thenNothing();
    given(...running({ idleTimeoutMs: 5_000 }))
      .when(fire('idle', 5_000))
      .thenTypes('SuspendRequested');
  });

  it('store and release it where the provider cannot suspend', () => {
    const idle = running({ idleTimeoutMs: 5_000 }, ['checkpoint']);
    given(...idle)
      .when(fire('idle', 5_000))
      .thenTypes('ReleaseRequested', 'CheckpointRequested');
    given(...idle, fire('idle', 5_000)).thenOwes('TakeCheckpoint ns-1');
    given(...idle, fire('idle', 5_000), taken(7)).thenOwes('DestroySandbox ns-1');
    given(...idle, fire('idle', 5_000), taken(7))
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased');
    given(...idle, fire('idle', 5_000), taken(7), issue(1))
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased', 'RehydrateRequested');
    given(...idle, fire('idle', 5_000))
      .when(report('SandboxReleased', {}))
      .thenRefused('out_of_order');
  });

  it('leave a session alone that cannot rest without losing its files', () => {
    given(...running({ idleTimeoutMs: 5_000 }, []))
      .when(fire('idle', 5_000))
      .thenNothing();
  });

  it('count from the last activity, and not while something runs that keeps it awake', () => {
    const idle = running({ idleTimeoutMs: 5_000 });
    const active = command('NoteActivity', { activity: 'preview' }, { at: 3_000 });
    given(...idle, active)
      .when(fire('idle', 7_999))
      .thenNothing();
    given(...idle, active)
      .when(fire('idle', 8_000))
      .thenTypes('SuspendRequested');
    given(...idle, issued(1))
      .when(fire('idle', 9_000))
      .thenNothing();
    given(...idle, issued(1, 1, { ...EXEC, keepsAwake: false }))
      .when(fire('idle', 9_000))
      .thenTypes('SuspendRequested');
  });

  it('record activity at most once per quarter of the idle timeout', () => {
    const at = (time: number) => command('NoteActivity', { activity: 'stdin' }, { at: time });
    given(...running({ idleTimeoutMs: 4_000 }))
      .when(at(999))
      .thenNothing();
    given(...running({ idleTimeoutMs: 4_000 }))
      .when(at(1_000))
      .thenTypes('ActivityObserved');
    given(...running({ idleTimeoutMs: null }))
      .when(at(1_000_000))
      .thenNothing();
  });

  it('keep a session for as long as it is to be kept', () => {
    given(...running({ idleTimeoutMs: 1_000, keepMs: 9_000 }))
      .when(fire('idle', 8_999))
      .thenNothing();
    given(...running({ idleTimeoutMs: 1_000, keepMs: 9_000 }))
      .when(fire('idle', 9_000))
      .thenTypes('SuspendRequested');
    given(...running({ idleTimeoutMs: null, keepMs: 900_000 }))
      .when(fire('keep', 899_999))
      .thenNothing();
    given(...running({ idleTimeoutMs: null, keepMs: 900_000 }))
      .when(fire('keep', 900_000))
      .thenTypes('SuspendRequested');
  });

  it('stop a session at its maximum runtime, with a warning before', () => {
    const bounded = running({ maxRuntimeMs: 10_000 });
    given(...bounded)
      .when(fire('runtime_warning', 9_000))
      .thenTypes('LimitExceeded');
    given(...bounded, fire('runtime_warning', 9_000))
      .when(fire('runtime_warning', 9_000))
      .thenNothing();
    given(...bounded)
      .when(fire('max_runtime', 9_999))
      .thenNothing();
    given(...bounded)
      .when(fire('max_runtime', 10_000))
      .thenTypes('StopRequested');
  });

  it('cancel an exec that ran for too long, once', () => {
    const bounded = [
      ...running(),
      issued(1, 1, { ...EXEC, timeoutMs: 1_000 }),
      fact('ExecStarted', { at: 500, execId: exec(1), epoch: 1, pid: null }),
    ];
    given(...bounded)
      .when(fire('exec_timeout', 1_499, exec(1)))
      .thenNothing();
    given(...bounded)
      .when(fire('exec_timeout', 1_500, exec(1)))
      .thenTypes('ExecCancelRequested');
    given(...bounded, fire('exec_timeout', 1_500, exec(1)))
      .when(fire('exec_timeout', 1_500, exec(1)))
      .thenNothing();
    given(...running(), issued(1, 1, { ...EXEC, timeoutMs: 1_000 }))
      .when(fire('exec_timeout', 9_000, exec(1)))
      .thenNothing();
  });

  it('take checkpoints by policy', () => {
    const policy = running({ checkpointEveryMs: 10_000 });
    given(...policy)
      .when(fire('checkpoint', 9_999))
      .thenNothing();
    given(...policy)
      .when(fire('checkpoint', 10_000))
      .thenTypes('CheckpointRequested');
  });
});
