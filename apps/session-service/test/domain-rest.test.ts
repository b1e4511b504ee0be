import { fact } from '@vmux/events';
import {
  checkpointNo,
  command,
  EXEC,
  exec,
  key,
  ON_NS,
  report,
  systemCommand,
} from './domain-makers';
import { ready, resume, resumed, suspend, suspended, take, taken } from './domain-messages';
import { given, issue, issued, running } from './domain-spec';

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

  it('by an order that came late, to a runner that was started again, is refused so that it is undone', () => {
    given(...asleep, resume, resumed(5))
      .when(suspended(3))
      .thenRefused('out_of_order');
    given(...asleep, resume)
      .when(suspended(3))
      .thenNothing();
    const again = [{ ...suspend, key: key('again') }, suspended(7)];
    given(...asleep, resume, resumed(5), ...again)
      .when(resumed(5))
      .thenRefused('out_of_order');
    given(...asleep, resume, resumed(5), ...again)
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

  it('start a service again that ended because its sandbox was given back, unless it was cancelled', () => {
    const service = { ...EXEC, keepsAwake: false, service: { name: 'web', restart: true } };
    const ended = report('ExecExited', {
      ...{ execId: exec(1), outcome: { kind: 'signalled', signal: 'SIGTERM' }, usage: null },
      sizes: { stdout: 0, stderr: 0, pty: 0 },
    });
    const idle = [...running({ idleTimeoutMs: 5_000 }, ['checkpoint']), issued(1, 1, service)];
    const stored = [fire('idle', 5_000), taken(7)];
    const released = report('SandboxReleased', {});
    const back = [issue(2, { placement: ON_NS })];
    const after = given(...idle, ...stored, ended, released, ...back)
      .when(ready(2, '7'.repeat(64)))
      .thenTypes('SandboxStarted', 'ExecDispatched', 'ExecIssued');
    expect(after.history.at(-1)?.event.data).toMatchObject({ follows: exec(1), spec: service });
    const cancel = command('CancelExec', { execId: exec(1), graceMs: 0 });
    given(...idle, cancel, ...stored, ended, released, ...back)
      .when(ready(2, '7'.repeat(64)))
      .thenTypes('SandboxStarted', 'ExecDispatched');
    given(...idle, ended, fire('idle', 50_000), taken(7), released, ...back)
      .when(ready(2, '7'.repeat(64)))
      .thenTypes('SandboxStarted', 'ExecDispatched');
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
