import { deriveExecId, type ExecSpec, fact, type Outcome, type SetupFound } from '@vmux/events';
import { command, EXEC, exec, key, report, SESSION_ID } from './domain-makers';
import { created, given, issue, requested, running } from './domain-spec';

const SETUP_ID = deriveExecId(SESSION_ID, 'setup', '1');
const found: SetupFound = {
  manifests: [{ kind: 'npm', path: 'package.json', digest: null }],
  missingTools: [],
  command: { kind: 'shell', line: 'npm ci' },
};
const ready = (setup: SetupFound | null = found) =>
  report('SandboxReady', { base: null, restoredDigest: null, setup }, { instance: 'i-1' });
const end = (execId: string, outcome: Outcome) => ({
  execId,
  outcome,
  sizes: { stdout: 0, stderr: 0, pty: 0 },
  usage: null,
});
const SUCCESS: Outcome = { kind: 'exited', code: 0 };
const FAILURE: Outcome = { kind: 'exited', code: 7 };
const done = report('ExecExited', end(SETUP_ID, SUCCESS));
const failed = report('ExecExited', end(SETUP_ID, FAILURE));
const issueAs = (purpose: ExecSpec['purpose'], number: number) =>
  command('IssueExec', { execId: exec(number), spec: { ...EXEC, purpose } }, { key: key(purpose) });
const starting = [created(), requested()];
const notStarted = (number: number, message: string) =>
  fact('ExecExited', {
    at: 1_000,
    execId: exec(number),
    epoch: null,
    outcome: { kind: 'not_started', reason: 'setup_failed', message },
    sizes: { stdout: 0, stderr: 0, pty: 0 },
    usage: null,
  });
const whyFailed = `the set-up ended with 7: its log is that of ${SETUP_ID}`;

describe('The set-up of a new sandbox', () => {
  it('is an exec of its own, and what was queued waits for it', () => {
    given(...starting, issue(1))
      .when(ready())
      .thenTypes('SandboxStarted', 'SetupDetected', 'ExecIssued');
    given(...starting, issue(1), ready()).thenOwes('StartExec ns-1');
  });

  it('is waited for by what is issued meanwhile, but not by a shell', () => {
    given(...starting, ready(), issue(1))
      .when(issueAs('shell', 2))
      .thenHappens(
        fact('ExecIssued', {
          at: 1_000,
          execId: exec(2),
          epoch: 1,
          spec: { ...EXEC, purpose: 'shell' },
          follows: null,
        }),
      );
    given(...starting, ready())
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: null, spec: EXEC, follows: null }),
      );
  });

  it('that succeeds is timed and lets the work go on', () => {
    given(...starting, issue(1), ready())
      .when(done)
      .thenTypes('ExecExited', 'StageReached', 'ExecDispatched');
  });

  it('that fails ends what waited for it, unstarted, with the reason', () => {
    given(...starting, issue(1), issue(2), ready())
      .when(failed)
      .thenHappens(
        fact('ExecExited', { ...end(SETUP_ID, FAILURE), at: 1_000, epoch: 1 }),
        notStarted(1, whyFailed),
        notStarted(2, whyFailed),
      );
  });

  it('that failed is told to the first command that comes later, and only to that one', () => {
    given(...starting, ready(), failed)
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: null, spec: EXEC, follows: null }),
        notStarted(1, whyFailed),
      );
    given(...starting, ready(), failed, issue(1))
      .when(issue(2))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(2), epoch: 1, spec: EXEC, follows: null }),
      );
  });

  it('that failed may be done by hand, after which nothing is left to tell', () => {
    const byHand = report('ExecExited', end(exec(9), SUCCESS));
    given(...starting, ready(), failed, issueAs('setup', 9), byHand)
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: 1, spec: EXEC, follows: null }),
      );
  });

  it('names the tools that are missing before anything starts', () => {
    const lacking = { ...found, missingTools: ['pnpm', 'go'] };
    given(...starting, issue(1))
      .when(ready(lacking))
      .thenTypes('SandboxStarted', 'SetupDetected', 'ExecExited');
    given(...starting, ready(lacking))
      .when(issue(1))
      .thenHappens(
        fact('ExecIssued', { at: 1_000, execId: exec(1), epoch: null, spec: EXEC, follows: null }),
        notStarted(
          1,
          'set-up needs pnpm, go, which the sandbox does not have: use an image that has it, or create the session without set-up',
        ),
      );
  });

  it('that is there already runs nothing', () => {
    given(...starting, issue(1))
      .when(ready({ ...found, command: null }))
      .thenTypes('SandboxStarted', 'SetupDetected', 'ExecDispatched');
  });

  it('is not awaited of a sandbox that asks for none', () => {
    given(...starting, issue(1))
      .when(ready(null))
      .thenTypes('SandboxStarted', 'ExecDispatched');
    given(...running())
      .when(issue(1))
      .thenTypes('ExecIssued');
  });
});
