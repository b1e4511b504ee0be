import { deriveExecId, MAX_REPLAY, type ReplayItem } from '@vmux/events';
import { checkpoint, checkpointNo, EXEC, exec, hex, ON_NS, report } from './domain-makers';
import {
  failed,
  lost,
  notTaken,
  place,
  ready,
  rehydrate,
  rollback,
  suspend,
  take,
  taken,
} from './domain-messages';
import { given, issue, issued, past, running } from './domain-spec';

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
      .thenRefused('out_of_order');
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

  it('of more than can be run again is refused: nothing is left out in silence', () => {
    const items = Array.from({ length: MAX_REPLAY + 1 }, (_, at) => item(at + 1));
    given(...running(), lost)
      .when(rehydrate(false, items))
      .thenRefused('checkpoint_unusable', { maxCommands: MAX_REPLAY });
    const after = given(...running(), lost)
      .when(rehydrate(false, items.slice(1)))
      .thenTypes('RehydrateRequested', 'ReplayRequested');
    expect(after.history.at(-1)?.event.data).toEqual({
      at: expect.any(Number),
      items: items.slice(1),
    });
  });

  it('of what cannot be said is refused with the reason, and answered all the same when it is repeated', () => {
    const asked = rehydrate(false, [item(1)]);
    const again = rehydrate(false, [], { whyNoReplay: 'too long' });
    given(...running(), lost)
      .when(again)
      .thenRefused('checkpoint_unusable');
    given(...running(), lost, asked)
      .when(again)
      .thenRepeats(4);
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
