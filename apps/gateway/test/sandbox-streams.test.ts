import { fact, type SessionEvent } from '@vmux/events';
import { releaseAll, releaseLater } from '@vmux/testing';
import { startTunnelServer, TunnelRefused } from '@vmux/tunnel';
import type { Caller } from '../src/application/key-ring';
import type { RunnerStanding } from '../src/application/runner-board';
import { apply, unborn } from '../src/application/session-view';
import { SandboxStreams } from '../src/data-plane/sandbox-streams';
import { apiErrorOf } from '../src/http/translate';
import { EXEC_SPEC } from './log-builder';

const SESSION = 'plane-0a1b';
const EXEC = 'e000000000001';
const ANN = { owner: 'ann' } as Caller;

const requested = (epoch: number) =>
  fact('SandboxRequested', {
    ...{ at: 2, epoch, runnerId: 'local', provider: 'ns', capabilities: [] },
    ...{ purpose: 'create', restore: null, allowBaseChange: false },
  });

/** A session in which a command runs, at a runner that has let go of its sandbox. */
async function forgotten(meanwhile: (happened: (event: SessionEvent) => void) => void) {
  const view = unborn(SESSION);
  const happened = (event: SessionEvent) => {
    view.revision += 1;
    const metadata = { principal: 'system', correlationId: 'r-1', version: 1 };
    apply(view, { event, revision: view.revision, metadata }, BigInt(view.revision));
  };
  const created = { at: 1, sessionId: SESSION, owner: 'ann', name: 'plane', attempt: 0 };
  happened(
    fact('SessionCreated', { ...created, provider: 'ns', spec: {} as never, lineage: null }),
  );
  happened(requested(1));
  const sandbox = { epoch: 1, instance: 'i-1', runnerId: 'local' };
  happened(fact('SandboxStarted', { at: 3, ...sandbox, base: null, restored: null }));
  happened(fact('ExecIssued', { at: 4, execId: EXEC, epoch: 1, spec: EXEC_SPEC, follows: null }));
  happened(fact('ExecStarted', { at: 5, execId: EXEC, epoch: 1, pid: 7 }));
  const tunnel = await startTunnelServer({
    ...{ host: '127.0.0.1', port: 0 },
    onFault: (fault) => {
      throw fault;
    },
    serve: async () => {
      meanwhile(happened);
      throw new TunnelRefused('stale_sandbox', 'this runner does not have that sandbox');
    },
  });
  const exec = view.execs.get(EXEC);
  if (!exec || !view.sandbox) throw new Error('nothing runs');
  const { sandbox: running } = view;
  const streams = new SandboxStreams(
    {
      session: async () => view,
      exec: async () => ({ view, exec: view.execs.get(EXEC) ?? exec }),
    },
    { waitFor: async (_id, done) => done(view) },
    { list: () => [{ heartbeat: { runnerId: 'local', tunnel } } as unknown as RunnerStanding] },
    { awake: async () => ({ ...view, sandbox: running }) },
  );
  releaseLater(async () => {
    streams.close();
    await tunnel.close();
  });
  return streams;
}

const { signal } = new AbortController();

async function typed(streams: SandboxStreams) {
  const input = { op: 'stdin', execId: EXEC, writer: 1, offset: 0, eof: true } as const;
  return faultOf(
    streams.inExec(ANN, SESSION, EXEC, signal, async (place) => {
      const stream = await streams.open(place, input, signal);
      stream.end();
      return stream.result;
    }),
  );
}

async function looked(streams: SandboxStreams) {
  const stat = { op: 'stat', path: '/', user: null, followLink: true } as const;
  return faultOf(
    streams.inSandbox(ANN, SESSION, signal, async (place) => {
      const stream = await streams.open(place, stat, signal);
      return stream.result;
    }),
  );
}

const faultOf = async (asked: Promise<unknown>) =>
  apiErrorOf(
    await asked.then(
      () => 'taken',
      (fault) => fault,
    ),
  );

const lost = fact('SandboxLost', {
  ...{ at: 6, epoch: 1, instance: 'i-1', evidence: { kind: 'probe', message: 'gone' } },
});

describe('input for a sandbox that its runner has let go of', () => {
  afterEach(releaseAll);

  it('is told that the command has ended, when the history says so by now', async () => {
    const streams = await forgotten((happened) => {
      const outcome = { kind: 'exited', code: 0 } as const;
      const sizes = { stdout: 0, stderr: 0, pty: 0 };
      const end = { at: 6, execId: EXEC, epoch: 1, outcome, usage: null };
      happened(fact('ExecExited', { ...end, sizes: sizes as never }));
    });
    expect(await typed(streams)).toMatchObject({ code: 'exec_ended' });
  });

  it('may be given again, when nothing has changed: the sandbox is the session’s still', async () => {
    const streams = await forgotten(() => undefined);
    const fault = await typed(streams);
    expect(fault).toMatchObject({ code: 'runner_unreachable', retryAfterSeconds: 1 });
  });
});

describe('a file in a sandbox that its runner has let go of', () => {
  afterEach(releaseAll);

  it('is not there, when the history says by now that the sandbox is lost', async () => {
    const streams = await forgotten((happened) => happened(lost));
    expect(await looked(streams)).toMatchObject({
      code: 'not_running',
      details: { status: 'lost' },
    });
  });

  it('may be asked for again in another sandbox, when there is one by now', async () => {
    const streams = await forgotten((happened) => {
      const sandbox = { epoch: 2, instance: 'i-2', runnerId: 'local' };
      happened(lost);
      happened(requested(2));
      happened(fact('SandboxStarted', { at: 7, ...sandbox, base: null, restored: null }));
    });
    expect(await looked(streams)).toMatchObject({ code: 'stale_epoch', retryAfterSeconds: 1 });
  });

  it('may be asked for again, when nothing has changed', async () => {
    const streams = await forgotten(() => undefined);
    const fault = await looked(streams);
    expect(fault).toMatchObject({ code: 'runner_unreachable', retryAfterSeconds: 1 });
  });
});
