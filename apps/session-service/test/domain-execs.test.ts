import { fact, NO_OUTPUT, type Outcome } from '@vmux/events';
import { react } from '../src/domain/react';
import { ENDED_EXECS, MAX_OPEN_EXECS } from '../src/domain/state';
import { command, EXEC, exec, key, report } from './domain-makers';
import { exited, logWith, ready, started } from './domain-messages';
import { created, given, issue, issued, past, requested, running } from './domain-spec';

const cancel = (number: number, graceMs = 100) =>
  command('CancelExec', { execId: exec(number), graceMs }, { key: key(`cancel-${number}`) });
const signal = (number: number) =>
  command('SignalExec', { execId: exec(number), signalId: 'g000000000001', signal: 'SIGINT' });

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
          sizes: NO_OUTPUT,
          usage: null,
        }),
      );
    given(...running(), issued(1), exited(1))
      .when(exited(1, {}, outcome))
      .thenNothing();
  });

  it('does not end before the log has all of its output', () => {
    given(...running(), issued(1))
      .withLog(logWith(4))
      .when(exited(1, { stdout: 5 }))
      .thenRefused('log_behind', { execId: exec(1), stream: 'stdout', expected: 4, reported: 5 });
    given(...running(), issued(1))
      .withLog(logWith(5))
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
          sizes: NO_OUTPUT,
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
