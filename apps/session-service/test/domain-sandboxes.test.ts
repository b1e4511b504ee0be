import { fact } from '@vmux/events';
import { ON_NS, placementOn, report, systemCommand } from './domain-makers';
import { failed, lost, place, ready, rehydrate } from './domain-messages';
import { created, given, issue, issued, requested, running } from './domain-spec';

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
