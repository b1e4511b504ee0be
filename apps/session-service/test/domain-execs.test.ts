import { type ExecSpec, fact, type Outcome, type Sizes } from '@vmux/events';
import { decideReport } from '../src/domain/decide';
import { EMPTY_LOG, type LogState } from '../src/domain/log-state';
import { react } from '../src/domain/react';
import { ENDED_EXECS, MAX_OPEN_EXECS } from '../src/domain/state';
import { command, EXEC, exec, key, ON_NS, placementOn, report } from './domain-makers';
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

const EXITED: Outcome = { kind: 'exited', code: 0 };
const NONE: Sizes = { stdout: 0, stderr: 0, pty: 0 };

const exited = (number: number, sizes: Partial<Sizes> = {}, outcome: Outcome = EXITED) =>
  report('ExecExited', {
    execId: exec(number),
    outcome,
    sizes: { ...NONE, ...sizes },
    usage: null,
  });
const started = (number: number) => report('ExecStarted', { execId: exec(number), pid: 7 });
const cancel = (number: number, graceMs = 100) =>
  command('CancelExec', { execId: exec(number), graceMs }, { key: key(`cancel-${number}`) });
const signal = (number: number) =>
  command('SignalExec', { execId: exec(number), signalId: 'g000000000001', signal: 'SIGINT' });
const lost = report('SandboxLost', { evidence: { kind: 'probe', message: 'no such process' } });
const ready = (epoch: number) =>
  report('SandboxReady', { base: null, restoredDigest: null }, { epoch, instance: `i-${epoch}` });
const withOutput = (stdout: number) => ({
  epoch: 1,
  closed: false,
  streams: { [exec(1)]: { next: { ...NONE, stdout }, resizes: 0, issued: 3 } },
});
const service: ExecSpec = { ...EXEC, keepsAwake: false, service: { name: 'web', restart: true } };

describe('Issuing an exec', () => {
  it('dispatches it to the sandbox that runs', () => {
    given(...running())
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: 1, spec: EXEC, follows: null }),
      );
    given(...running(), issue(1)).thenOwes('StartExec ns-1');
  });

  it('runs it where and as whom the session says, unless it says so itself', () => {
    const [session, ...rest] = running();
    if (session?.type !== 'SessionCreated') throw new Error('no session');
    const spec = { ...session.data.spec, cwd: '/workspace/inner', user: 'web' };
    const made = [fact('SessionCreated', { ...session.data, spec }), ...rest];
    const own = { ...EXEC, cwd: '/srv', user: 'root' };
    const { orders } = react(past(...made, issued(1), issued(2, 1, own)).session, 0);
    expect(orders.map(({ data }) => ('spec' in data ? data.spec : null))).toMatchObject([
      { cwd: '/workspace/inner', user: 'web' },
      { cwd: '/srv', user: 'root' },
    ]);
  });

  it('queues it while no sandbox runs, and orders nothing for it', () => {
    given(created(), requested())
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: null, spec: EXEC, follows: null }),
      );
    given(created(), requested(), issue(1)).thenOwes('CreateSandbox ns-1');
  });

  it('dispatches queued ones, in order, when the sandbox is ready', () => {
    given(created(), requested(), issue(1), issue(2))
      .when(ready(1))
      .thenHappens(
        fact('SandboxStarted', {
          at: 1_000,
          epoch: 1,
          instance: 'i-1',
          runnerId: 'ns-1',
          base: null,
          restored: null,
        }),
        fact('ExecDispatched', { at: 1_000, execId: exec(1), epoch: 1 }),
        fact('ExecDispatched', { at: 1_000, execId: exec(2), epoch: 1 }),
      );
  });

  it('is refused under an id that is in use or was', () => {
    const again = { ...issue(1), key: key('again') };
    given(...running(), issue(1))
      .when(again)
      .thenRefused('id_taken');
    given(...running(), issue(1), exited(1))
      .when(again)
      .thenRefused('id_taken');
  });

  it('is bounded', () => {
    const many = Array.from({ length: MAX_OPEN_EXECS }, (_, index) => issued(index));
    given(...running(), ...many)
      .when(issue(9_999))
      .thenRefused('too_many');
  });

  it('with a terminal is refused where there are none', () => {
    const terminal = command('IssueExec', {
      execId: exec(1),
      spec: { ...EXEC, pty: { cols: 80, rows: 24 } },
    });
    given(...running({}, []))
      .when(terminal)
      .thenRefused('not_supported');
    given(...running())
      .when(terminal)
      .thenTypes('ExecIssued');
  });
});

describe('An exec', () => {
  it('is started once, whatever is reported again', () => {
    given(...running(), issued(1))
      .when(started(1))
      .thenTypes('ExecStarted');
    given(...running(), issued(1), started(1))
      .when(started(1))
      .thenNothing();
    given(...running(), issued(1), started(1), exited(1))
      .when(started(1))
      .thenNothing();
    given(...running(), issued(1), started(1)).thenOwes();
  });

  it('ends with what its sandbox reported, once', () => {
    const outcome: Outcome = { kind: 'signalled', signal: 'SIGKILL' };
    given(...running(), issued(1))
      .when(exited(1, {}, outcome))
      .thenHappens(
        fact('ExecExited', {
          at: 1_000,
          execId: exec(1),
          epoch: 1,
          outcome,
          sizes: NONE,
          usage: null,
        }),
      );
    given(...running(), issued(1), exited(1))
      .when(exited(1, {}, outcome))
      .thenNothing();
  });

  it('does not end before the log has all of its output', () => {
    given(...running(), issued(1))
      .withLog(withOutput(4))
      .when(exited(1, { stdout: 5 }))
      .thenRefused('log_behind', { execId: exec(1), stream: 'stdout', expected: 4, reported: 5 });
    given(...running(), issued(1))
      .withLog(withOutput(5))
      .when(exited(1, { stdout: 5 }))
      .thenTypes('ExecExited');
  });

  it('is not ended by a sandbox that it was never dispatched to', () => {
    given(...running(), issued(1, null))
      .when(exited(1))
      .thenRefused('out_of_order');
    given(...running())
      .when(exited(1))
      .thenRefused('exec_not_found');
  });

  it('is forgotten only when many more have ended', () => {
    const cycle = (number: number) => [issued(number), exited(number)];
    const many = Array.from({ length: ENDED_EXECS }, (_, index) => cycle(index + 2)).flat();
    const more = Array.from({ length: ENDED_EXECS }, (_, index) => cycle(index + 5_000)).flat();
    given(...running(), ...cycle(1), ...many)
      .when(exited(1))
      .thenNothing();
    given(...running(), ...cycle(1), ...many, ...more)
      .when(exited(1))
      .thenRefused('exec_not_found');
  });
});

describe('Cancelling an exec', () => {
  it('asks the sandbox and no longer starts it', () => {
    given(...running(), issued(1))
      .when(cancel(1))
      .thenTypes('ExecCancelRequested');
    given(...running(), issued(1), cancel(1)).thenOwes('CancelExec ns-1');
    given(...running(), issued(1), started(1), cancel(1)).thenOwes('CancelExec ns-1');
  });

  it('ends one that waits at once: it has never run', () => {
    given(created(), requested(), issued(1, null))
      .when(cancel(1))
      .thenHappens(
        fact('ExecCancelRequested', {
          at: 1_000,
          execId: exec(1),
          cause: 'request',
          graceMs: 100,
        }),
        fact('ExecExited', {
          at: 1_000,
          execId: exec(1),
          epoch: null,
          outcome: { kind: 'not_started', reason: 'cancelled', message: null },
          sizes: NONE,
          usage: null,
        }),
      );
    given(created(), requested(), issued(1, null), cancel(1))
      .when(ready(1))
      .thenTypes('SandboxStarted');
  });

  it('again asks again only for less grace', () => {
    const again = (graceMs: number) => ({ ...cancel(1, graceMs), key: key('again') });
    given(...running(), issued(1), cancel(1))
      .when(again(100))
      .thenNothing();
    given(...running(), issued(1), cancel(1))
      .when(again(0))
      .thenTypes('ExecCancelRequested');
  });

  it('of one that has ended is no news, and of an unknown one is refused', () => {
    given(...running(), issued(1), exited(1))
      .when(cancel(1))
      .thenNothing();
    given(...running())
      .when(cancel(1))
      .thenRefused('exec_not_found');
  });
});

describe('A signal', () => {
  it('is ordered until it is reported', () => {
    given(...running(), issued(1), started(1))
      .when(signal(1))
      .thenTypes('ExecSignalRequested');
    given(...running(), issued(1), started(1), signal(1)).thenOwes('SignalExec ns-1');
    const delivered = report('ExecSignalled', {
      execId: exec(1),
      signalId: 'g000000000001',
      delivered: true,
    });
    given(...running(), issued(1), started(1), signal(1))
      .when(delivered)
      .thenTypes('ExecSignalled');
    given(...running(), issued(1), started(1), signal(1), delivered).thenOwes();
    given(...running(), issued(1), started(1), signal(1), delivered)
      .when(delivered)
      .thenNothing();
  });

  it('is refused for one that waits or has ended', () => {
    given(created(), requested(), issued(1, null)).when(signal(1)).thenRefused('not_running');
    given(...running(), issued(1), exited(1))
      .when(signal(1))
      .thenRefused('exec_ended');
  });
});

describe('When a sandbox is lost', () => {
  it('dispatched execs end as unknown with the sizes that the log was closed with', () => {
    given(...running(), issued(1))
      .withLog(withOutput(12))
      .when(lost)
      .thenHappens(
        fact('SandboxLost', {
          at: 1_000,
          epoch: 1,
          instance: 'i-1',
          evidence: { kind: 'probe', message: 'no such process' },
        }),
        fact('ExecOutcomeUnknown', {
          at: 1_000,
          execId: exec(1),
          epoch: 1,
          reason: 'sandbox_lost',
          sizes: { ...NONE, stdout: 12 },
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
