import { fact } from '@vmux/events';
import {
  command,
  hex,
  key,
  ON_NS,
  OWNER,
  placementOn,
  report,
  SESSION_ID,
  SPEC,
} from './domain-makers';
import { created, createSession, given, issue, issued, requested, running } from './domain-spec';

const stop = (data = { graceMs: null as number | null, force: false }) =>
  command('StopSession', data, { at: 5 });
const remove = (force: boolean) => command('DeleteSession', { force }, { at: 6 });
const stopRequested = fact('StopRequested', {
  at: 0,
  cause: 'request',
  graceMs: 0,
  thenDelete: false,
});
const stopped = [
  created(),
  requested(),
  stopRequested,
  fact('SessionStopped', { at: 0, cause: 'request' }),
];

describe('Creating a session', () => {
  it('records the session and the sandbox asked of a runner, in one append', () => {
    given()
      .when(createSession())
      .thenHappens(
        fact('SessionCreated', {
          at: 1_000,
          sessionId: SESSION_ID,
          owner: OWNER,
          name: 'web',
          attempt: 0,
          provider: 'ns',
          spec: SPEC,
          lineage: null,
        }),
        fact('SandboxRequested', {
          at: 1_000,
          epoch: 1,
          ...ON_NS,
          purpose: 'create',
          restore: null,
          allowBaseChange: false,
        }),
      );
  });

  it('with the same key again finds the session that there is', () => {
    given(createSession()).when(createSession()).thenRepeats(0);
  });

  it('with the same key for another request is refused', () => {
    given(createSession())
      .when({ ...createSession(), digest: hex('c') })
      .thenRefused('key_reused');
  });

  it('under an id that another key took moves to the next attempt', () => {
    given(createSession())
      .when({ ...createSession(), key: key('another') })
      .thenRefused('name_taken', { sessionId: SESSION_ID });
  });

  it('without a runner is not admitted', () => {
    given()
      .when({ ...createSession(), placement: null })
      .thenRefused('no_placement');
    given()
      .when(createSession({}, placementOn('docker')))
      .thenRefused('no_placement');
  });

  it('with a GPU where there is none is refused', () => {
    const spec = { ...SPEC, resources: { ...SPEC.resources, gpu: 'H100' } };
    given().when(createSession({ spec })).thenRefused('not_supported', { capability: 'gpu' });
  });

  it('with build steps where nothing builds is refused', () => {
    const spec = { ...SPEC, build: ['pip install numpy'] };
    given().when(createSession({ spec })).thenRefused('not_supported', { capability: 'build' });
    given()
      .when(createSession({ spec: { ...SPEC, build: [] } }))
      .thenTypes('SessionCreated', 'SandboxRequested');
  });
});

describe('A session of somebody else', () => {
  it.each([
    ['exec', issue(1)],
    ['stop', stop()],
    ['delete', remove(true)],
    ['suspend', command('SuspendSession', {})],
  ])('does not exist for %s', (_, asked) => {
    given(...running())
      .when({ ...asked, owner: 'bob' })
      .thenRefused('session_not_found');
    given().when(asked).thenRefused('session_not_found');
  });
});

describe('Once', () => {
  it('binds no key when it refuses: the same key may be used again', () => {
    const refused = command('CancelExec', { execId: 'e000000000001', graceMs: 0 });
    given(...running())
      .when(refused)
      .thenRefused('exec_not_found');
    given(...running(), issued(1))
      .when(refused)
      .thenTypes('ExecCancelRequested');
  });

  it('finds the first event of a command that caused several', () => {
    const asleep = [
      ...running(),
      fact('SuspendRequested', { at: 0, epoch: 1, cause: 'request' }),
      fact('SandboxSuspended', { at: 0, epoch: 1 }),
    ];
    given(...asleep)
      .when(issue(1))
      .thenTypes('ExecIssued', 'ResumeRequested');
    given(...asleep, issue(1))
      .when(issue(1))
      .thenRepeats(asleep.length);
  });
});

describe('Stopping a session', () => {
  it('asks the runner first, and is done when the sandbox is gone', () => {
    given(...running())
      .when(stop())
      .thenHappens(
        fact('StopRequested', { at: 5, cause: 'request', graceMs: 1_000, thenDelete: false }),
      );
    given(...running(), stop()).thenOwes('DestroySandbox ns-1');
    given(...running(), stop())
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased', 'SessionStopped');
    given(...running(), stop(), report('SandboxReleased', {})).thenOwes();
  });

  it('ends what still ran as unknown, after the log is closed, and what waited as never started', () => {
    const stopping = given(...running(), issued(1), issued(2, null), stop());
    stopping
      .withLog({ epoch: 1, closed: false })
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased', 'ExecOutcomeUnknown', 'ExecExited', 'SessionStopped');
  });

  it('takes outcomes that are reported while it stops', () => {
    const exit = report('ExecExited', {
      execId: 'e000000000001',
      outcome: { kind: 'signalled', signal: 'SIGTERM' },
      sizes: { stdout: 0, stderr: 0, pty: 0 },
      usage: null,
    });
    given(...running(), issued(1), stop())
      .when(exit)
      .thenTypes('ExecExited');
  });

  it('is done at once where there is no sandbox, and destroys the one that was only asked for', () => {
    given(created(), requested()).when(stop()).thenTypes('StopRequested', 'SessionStopped');
    given(created(), requested(), stop()).thenOwes('DestroySandbox ns-1');
    given(created(), requested(), stop())
      .when(report('SandboxReady', { base: null, restoredDigest: null }))
      .thenRefused('stale_epoch');
  });

  it('does not wait for a runner when it is forced to', () => {
    given(...running(), issued(1))
      .when(stop({ graceMs: null, force: true }))
      .thenTypes('StopRequested', 'SandboxLost', 'ExecOutcomeUnknown', 'SessionStopped');
    given(...running(), stop())
      .when({ ...stop({ graceMs: null, force: true }), key: key('force') })
      .thenTypes('SandboxLost', 'SessionStopped');
  });

  it('twice is stopping once', () => {
    given(...running(), stop())
      .when(stop())
      .thenRepeats(3);
    given(...running(), stop())
      .when({ ...stop(), key: key('again') })
      .thenNothing();
    given(...stopped)
      .when(stop())
      .thenNothing();
  });

  it('refuses new work from then on', () => {
    given(...running(), stop())
      .when(issue(1))
      .thenRefused('session_ended');
    given(...stopped)
      .when(issue(1))
      .thenRefused('session_ended');
  });
});

describe('Deleting a session', () => {
  it('is refused while it lives', () => {
    given(...running())
      .when(remove(false))
      .thenRefused('session_live');
  });

  it('leaves nothing but whose it was and the key that made it', () => {
    const { session } = given(createSession(), stop(), remove(false));
    expect(session).toEqual({
      status: 'deleted',
      revision: 4,
      sessionId: SESSION_ID,
      owner: OWNER,
      createdBy: createSession().key,
    });
  });

  it('stops it first when it is forced to', () => {
    given(...running())
      .when(remove(true))
      .thenTypes('StopRequested');
    given(...running(), remove(true))
      .when(report('SandboxReleased', {}))
      .thenTypes('SandboxReleased', 'SessionStopped', 'SessionDeleted');
    given(created(), requested())
      .when(remove(true))
      .thenTypes('StopRequested', 'SessionStopped', 'SessionDeleted');
  });

  it('is for ever: nothing brings it back, and deleting again is no news', () => {
    const gone = given(createSession(), stop(), remove(false));
    gone.when(remove(false)).thenNothing();
    gone.when(createSession()).thenRefused('session_deleted');
    gone.when({ ...createSession(), key: key('another') }).thenRefused('name_taken');
    gone.when(issue(1)).thenRefused('session_deleted');
    gone.when({ ...issue(1), owner: 'bob' }).thenRefused('session_not_found');
    gone.when(report('PortClosed', { port: 80 })).thenRefused('stale_epoch');
  });

  it('can be read from the last event alone, when the rest of the stream is gone', () => {
    const last = fact('SessionDeleted', {
      at: 1,
      sessionId: SESSION_ID,
      owner: OWNER,
      createdBy: createSession().key,
    });
    given(last).when(createSession()).thenRefused('session_deleted');
  });
});

describe('Ports, stages, limits and set-up', () => {
  const opened = (at: number) =>
    report('PortOpened', { port: 80, address: '127.0.0.1', execId: null }, { at });
  const closed = (at: number) => report('PortClosed', { port: 80 }, { at });

  it('are recorded when they are news', () => {
    given(...running())
      .when(opened(1))
      .thenTypes('PortOpened');
    given(...running(), opened(1))
      .when(opened(2))
      .thenNothing();
    given(...running(), opened(1))
      .when(closed(2))
      .thenTypes('PortClosed');
    given(...running())
      .when(closed(2))
      .thenNothing();
  });

  it('are not brought back by a late repeat', () => {
    given(...running(), opened(1), closed(2))
      .when(opened(1))
      .thenNothing();
    given(...running(), opened(1), closed(2), opened(3))
      .when(closed(2))
      .thenNothing();
  });

  it('are recorded once for each sandbox', () => {
    const stage = report('StageReached', { stage: 'provisioned', execId: null }, { at: 1 });
    const setup = report('SetupDetected', { manifests: [], missingTools: [] });
    given(...running())
      .when(stage)
      .thenTypes('StageReached');
    given(...running(), stage)
      .when(stage)
      .thenNothing();
    given(...running(), setup)
      .when(setup)
      .thenNothing();
  });

  it('are recorded for an exec only while it is open', () => {
    const stage = report('StageReached', { stage: 'first_output', execId: 'e000000000001' });
    given(...running(), issued(1))
      .when(stage)
      .thenTypes('StageReached');
    given(...running())
      .when(stage)
      .thenNothing();
  });

  it('tell a limit again when it is exceeded again', () => {
    const limit = (at: number) =>
      report(
        'LimitExceeded',
        { limit: 'memory', level: 'killed', value: 2, max: 1, execId: null },
        { at },
      );
    given(...running(), limit(1))
      .when(limit(1))
      .thenNothing();
    given(...running(), limit(1))
      .when(limit(2))
      .thenTypes('LimitExceeded');
  });
});

describe('Shares', () => {
  const grant = (number: number, at = 1) =>
    command(
      'GrantShare',
      {
        shareId: `s${String(number).padStart(12, '0')}`,
        tokenHash: hex('a'),
        rights: ['logs'],
        ports: [],
        expiresAt: 100,
      },
      { key: key(`grant-${number}`), at },
    );

  it('are granted and revoked', () => {
    given(...running())
      .when(grant(1))
      .thenTypes('ShareGranted');
    const revoke = command('RevokeShare', { shareId: 's000000000001' });
    given(...running(), grant(1))
      .when(revoke)
      .thenTypes('ShareRevoked');
    given(...running())
      .when(revoke)
      .thenNothing();
  });

  it('expire in the future', () => {
    given(...running())
      .when(grant(1, 100))
      .thenRefused('nothing_to_do');
  });

  it('are bounded, and those that have expired do not count', () => {
    const many = Array.from({ length: 100 }, (_, index) => grant(index));
    given(...running(), ...many)
      .when(grant(100))
      .thenRefused('too_many');
    const later = { ...grant(100, 100), data: { ...grant(100).data, expiresAt: 200 } };
    given(...running(), ...many)
      .when(later as ReturnType<typeof grant>)
      .thenTypes('ShareGranted');
  });
});
