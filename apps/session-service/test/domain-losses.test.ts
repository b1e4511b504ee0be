import { type ExecSpec, fact, NO_OUTPUT } from '@vmux/events';
import { decideReport } from '../src/domain/decide';
import { EMPTY_LOG, type LogState } from '../src/domain/log-state';
import { EXEC, exec, ON_NS, placementOn } from './domain-makers';
import { exited, logWith, lost, ready, started } from './domain-messages';
import {
  created,
  given,
  issue,
  issued,
  past,
  requested,
  running,
  sandboxStarted,
} from './domain-spec';

const service: ExecSpec = { ...EXEC, keepsAwake: false, service: { name: 'web', restart: true } };

describe('When a sandbox is lost', () => {
  it('dispatched execs end as unknown with the sizes that the log was closed with', () => {
    given(...running(), issued(1))
      .withLog(logWith(12))
      .when(lost)
      .thenHappens(
        fact('SandboxLost', {
          at: 1_000,
          epoch: 1,
          instance: 'i-1',
          evidence: { kind: 'probe', message: 'gone' },
        }),
        fact('ExecOutcomeUnknown', {
          at: 1_000,
          execId: exec(1),
          epoch: 1,
          reason: 'sandbox_lost',
          sizes: { ...NO_OUTPUT, stdout: 12 },
        }),
      );
  });

  it('nothing is decided before the log of its epoch is closed', () => {
    const { session } = past(...running(), issued(1));
    const decided = (log: Partial<LogState>) => () =>
      decideReport(lost, session, { ...EMPTY_LOG, ...log });
    const open = expect.objectContaining({ code: 'log_open', facts: { epoch: 1 } });
    expect(decided({ epoch: 0, closed: true })).toThrow(open);
    expect(decided({ epoch: 1, closed: false })).toThrow(open);
    expect(decided({ epoch: 1, closed: true })).not.toThrow();
  });

  it('queued execs go to the next epoch, and are never dispatched to the one before', () => {
    const waiting = [
      ...running(),
      fact('SuspendRequested', { at: 0, epoch: 1, cause: 'request' }),
      issue(1),
    ];
    const after = given(...waiting)
      .when(lost)
      .thenTypes('SandboxLost', 'RehydrateRequested');
    expect(after.session).toMatchObject({ execs: { [exec(1)]: { epoch: null } } });
  });

  it('a later exec wakes the session, and goes to the new sandbox', () => {
    const awake = given(...running(), lost);
    awake
      .when(issue(1, { placement: ON_NS }))
      .thenTypes('ExecIssued', 'RehydrateRequested', 'SandboxRequested');
    given(...running(), lost, issue(1, { placement: ON_NS }))
      .when(ready(2))
      .thenTypes('SandboxStarted', 'ExecDispatched');
  });

  it('a later exec waits for a runner when none is there', () => {
    given(...running(), lost)
      .when(issue(1))
      .thenTypes('ExecIssued', 'RehydrateRequested');
    given(...running(), lost)
      .when(issue(1, { placement: placementOn('docker') }))
      .thenTypes('ExecIssued', 'RehydrateRequested');
  });

  it('work whose outcome is unknown is not run again, but a declared service is, as a new exec', () => {
    const after = given(
      ...running(),
      issued(1),
      issued(2, 1, service),
      lost,
      issue(3, { placement: ON_NS }),
    )
      .when(ready(2))
      .thenTypes('SandboxStarted', 'ExecDispatched', 'ExecIssued');
    expect(after.history.at(-1)?.event).toMatchObject({
      type: 'ExecIssued',
      data: { epoch: 2, follows: exec(2), spec: service },
    });
  });

  it('a session that never rehydrates by itself refuses work', () => {
    given(...running({ rehydrate: 'never' }), lost)
      .when(issue(1))
      .thenRefused('not_running');
  });

  it('a session that rehydrates immediately asks for a sandbox at once', () => {
    given(...running({ rehydrate: 'immediately' }))
      .when(lost)
      .thenTypes('SandboxLost', 'RehydrateRequested');
  });

  it('its late reports are refused', () => {
    given(...running(), issued(1), lost)
      .when(exited(1))
      .thenRefused('stale_epoch');
    given(...running(), issued(1), lost, issue(2, { placement: ON_NS }), ready(2))
      .when(exited(2))
      .thenRefused('stale_epoch', { epoch: 1, currentEpoch: 2 });
  });
});

describe('Reports', () => {
  it('of another instance in the same epoch are refused', () => {
    given(...running(), issued(1))
      .when({ ...exited(1), instance: 'i-9' })
      .thenRefused('stale_epoch');
  });

  it('of another runner are refused', () => {
    given(...running(), issued(1))
      .when({ ...exited(1), runnerId: 'ns-2' })
      .thenRefused('wrong_runner');
  });

  it('of work in a sandbox that is only pending are refused', () => {
    given(created(), requested(), issued(1, null)).when(started(1)).thenRefused('stale_epoch');
  });

  it('of a session that never was are refused', () => {
    given().when(started(1)).thenRefused('session_not_found');
    given().when(ready(1)).thenRefused('session_not_found');
  });

  it('of a second sandbox for the same epoch are refused, so that its runner destroys it', () => {
    given(...running())
      .when(ready(1))
      .thenNothing();
    given(...running())
      .when({ ...ready(1), instance: 'i-9' })
      .thenRefused('stale_epoch');
    given(created(), requested(), sandboxStarted()).thenOwes();
  });
});
