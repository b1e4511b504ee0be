import { fact, type Placement } from '@vmux/events';
import { REASSIGN_AFTER_MS } from '../src/domain/state';
import { command, ON_NS, placementOn, report, systemCommand } from './domain-makers';
import { failed, lost, place, ready, rehydrate } from './domain-messages';
import { created, given, issue, issued, requested, running, sandboxStarted } from './domain-spec';

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

describe('A runner that is silent', () => {
  const pool = 'account-1';
  const others = { ...placementOn('ns'), runnerId: 'ns-2', pool };
  const pooled = [created(), requested(1, { pool }), sandboxStarted()];
  const toAnother = (to: Partial<Placement>, at = REASSIGN_AFTER_MS) => {
    const data = { epoch: 1, instance: 'i-1', to: { ...others, ...to }, since: 0 };
    return systemCommand('ReassignRunner', data, { at });
  };
  const reassign = toAnother({});

  it('loses its sandbox to another of its pool, and is told to let go', () => {
    given(...pooled)
      .when(reassign)
      .thenHappens(
        fact('RunnerReassigned', { at: REASSIGN_AFTER_MS, epoch: 1, from: 'ns-1', to: 'ns-2' }),
      );
    given(...pooled, reassign)
      .when(reassign)
      .thenNothing();
    given(...pooled, reassign)
      .when(lost)
      .thenRefused('wrong_runner');
    given(...pooled, reassign)
      .when(ready(1, null, 'ns-2'))
      .thenTypes('SandboxAdopted');
    given(...pooled, reassign, ready(1, null, 'ns-2')).thenOwes();
  });

  it('keeps it for a while, and for ever where nobody else has it in reach', () => {
    given(...pooled)
      .when(toAnother({}, REASSIGN_AFTER_MS - 1))
      .thenRefused('too_early');
    given(...running())
      .when(reassign)
      .thenRefused('not_supported');
    for (const to of [{ pool: 'account-2' }, { provider: 'docker' }])
      given(...pooled)
        .when(toAnother(to))
        .thenRefused('not_supported');
  });

  it('keeps what runs in it: until it is adopted nothing else is asked of the other one', () => {
    const stop = command('StopSession', { graceMs: 0, force: false });
    given(...pooled, issued(1), reassign).thenOwes('AdoptSandbox ns-2');
    given(...pooled, issued(1), reassign, stop).thenOwes('AdoptSandbox ns-2');
    const adopted = [...pooled, issued(1), reassign, ready(1, null, 'ns-2')];
    given(...adopted).thenOwes('StartExec ns-2');
    given(...adopted, stop).thenOwes('DestroySandbox ns-2');
  });

  it('is followed by a third when the second is silent as well', () => {
    given(...pooled, reassign)
      .when(toAnother({ runnerId: 'ns-3' }))
      .thenTypes('RunnerReassigned');
  });

  it('has lost it when the other one finds it gone', () => {
    const gone = report(
      'SandboxLost',
      { evidence: { kind: 'probe', message: 'gone' } },
      { runnerId: 'ns-2' },
    );
    given(...pooled, reassign)
      .when(gone)
      .thenTypes('SandboxLost');
  });
});
