import { Failure } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import { FakeRunner } from '../../../test/support/fake-runner';
import {
  readinessOf,
  type ServiceProcess,
  type Stack,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Client, factsOf, historyOf, outputOf, specOf } from './client';

let stack: Stack;
let service: ServiceProcess;
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
});
beforeEach(async () => {
  service = await startService(stack);
  runner = new FakeRunner(stack.bus);
  client = new Client(stack.bus);
});
afterEach(async () => {
  await runner.stop();
  await service.kill();
});
afterAll(releaseAll);

const running = async (name: string, spec = specOf()): Promise<string> => {
  const { sessionId } = await client.create(name, spec);
  await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
  return sessionId;
};
const restarted = async (): Promise<void> => {
  await service.kill('SIGKILL');
  service = await startService(stack);
};
const seen = (sessionId: string, type: string, count = 1, timeoutMs = 15_000) =>
  until(
    async () => {
      const found = await factsOf(stack.store, sessionId, type);
      return found.length >= count && found;
    },
    { timeoutMs },
  );
const policy = { ...specOf().policy };

describe('after kill -9 a session service', () => {
  it('sends again what is owed, and the exec completes once', async () => {
    const sessionId = await running('killed');
    runner.acts.StartExec = () => undefined;
    const { execId } = await client.exec(sessionId, 'survives', 'key');
    await until(() => runner.ordersOf('StartExec', sessionId).length > 0);
    await service.kill('SIGKILL');
    runner.acts = {};
    service = await startService(stack);
    await seen(sessionId, 'ExecExited');
    expect((await outputOf(stack.store, sessionId, execId, 'stdout')).toString()).toBe('survives');
    expect(await factsOf(stack.store, sessionId, 'ExecStarted')).toHaveLength(1);
    expect(await client.exec(sessionId, 'survives', 'key')).toMatchObject({ repeated: true });
  });

  it('goes on with a log from where it stands', async () => {
    const sessionId = await running('tail');
    runner.acts.StartExec = () => undefined;
    const { execId } = await client.exec(sessionId, 'x');
    const sandbox = runner.sandboxOf(sessionId);
    await runner.report(sandbox, 'ExecStarted', { execId, pid: 1 });
    for (let at = 0; at < 100; at += 1)
      await runner.write(sandbox, execId, at * 10, Buffer.from('0123456789'));
    await restarted();
    const early = await runner.exit(sandbox, execId, { stdout: 1010 });
    expect(early).toMatchObject({ refused: { code: 'log_behind', facts: { expected: 1000 } } });
    const both = Buffer.from('ABCDEFGHIJabcdefghij');
    expect(await runner.write(sandbox, execId, 990, both)).toMatchObject({
      ok: true,
      next: { [execId]: { stdout: 1010 } },
    });
    expect(await runner.exit(sandbox, execId, { stdout: 1010 })).toMatchObject({ ok: true });
    const found = await outputOf(stack.store, sessionId, execId, 'stdout');
    expect(found.subarray(980).toString()).toBe('01234567890123456789abcdefghij');
  });

  it('still fires deadlines that were set before', async () => {
    const limited = specOf({ policy: { ...policy, maxRuntimeMs: 6000 } });
    const [execs, ends] = [await running('exec-timeout'), await running('max-runtime', limited)];
    runner.acts.StartExec = async ({ data: { execId } }) => {
      await runner.report(runner.sandboxOf(execs), 'ExecStarted', { execId, pid: 1 });
    };
    await client.exec(execs, 'sleep', 'k', { timeoutMs: 3000 });
    await seen(execs, 'ExecStarted');
    await restarted();
    expect(await seen(execs, 'ExecCancelRequested')).toMatchObject([{ cause: 'timeout' }]);
    await until(() => runner.ordersOf('CancelExec', execs).length > 0);
    expect(await seen(ends, 'StopRequested')).toMatchObject([{ cause: 'max_runtime' }]);
    await seen(ends, 'SessionStopped');
  });

  it('finds sessions with work owed that it has an index of, and those it has none of', async () => {
    const before = await running('indexed');
    await service.stop();
    service = await startService(stack);
    const after = await running('not-indexed');
    runner.acts.SuspendSandbox = () => undefined;
    for (const sessionId of [before, after]) await client.ask('SuspendSession', sessionId, {});
    await until(() => runner.ordersOf('SuspendSandbox').length >= 2);
    await service.kill('SIGKILL');
    const ordered = runner.ordersOf('SuspendSandbox').length;
    runner.acts = {};
    service = await startService(stack);
    for (const sessionId of [before, after]) await seen(sessionId, 'SandboxSuspended');
    expect(runner.ordersOf('SuspendSandbox').length).toBeGreaterThan(ordered);
  });
});

describe('asked to stop, a session service', () => {
  it('answers what it has taken, and what it answered is in the history', async () => {
    const sessionId = await running('leaving');
    runner.acts.StartExec = () => undefined;
    const asked = Array.from({ length: 40 }, (_, index) =>
      client.exec(sessionId, `exec ${index}`).then(
        ({ execId }) => execId,
        () => null,
      ),
    );
    await Promise.race(asked);
    expect(await service.stop()).toEqual({ code: 0, signal: null });
    const answered = (await Promise.all(asked)).filter((execId) => execId !== null);
    const issued = (await factsOf(stack.store, sessionId, 'ExecIssued')).map((f) => f.execId);
    expect([...issued].sort()).toEqual([...answered].sort());
    expect(answered.length).toBeGreaterThan(0);
  });
});

describe('an idle session', () => {
  it('is suspended, and an exec wakes it', async () => {
    const sessionId = await running('idle', specOf({ policy: { ...policy, idleTimeoutMs: 1000 } }));
    await seen(sessionId, 'SandboxSuspended');
    await client.exec(sessionId, 'wake up');
    await seen(sessionId, 'ExecExited');
    expect(await factsOf(stack.store, sessionId, 'ResumeRequested')).toMatchObject([
      { cause: 'exec' },
    ]);
  });
});

describe('a runner', () => {
  it('that falls silent for longer than the policy allows has lost its sandboxes', async () => {
    const sessionId = await running(
      'silent',
      specOf({ policy: { ...policy, lostAfterMs: 10_000, rehydrate: 'never' } }),
    );
    runner.fallSilent();
    expect(await seen(sessionId, 'SandboxLost', 1, 25_000)).toMatchObject([
      { evidence: { kind: 'unreachable' } },
    ]);
  });

  it('that fails to start a sandbox is asked for another', async () => {
    const sessionId = await running('replaced', specOf());
    runner.acts.CreateSandbox = async (order) => {
      runner.acts.CreateSandbox = undefined;
      const sandbox = { sessionId, epoch: order.epoch, instance: 'none' };
      await runner.report(sandbox, 'SandboxFailed', { message: 'no room', retryable: true });
    };
    await runner.report(runner.sandboxOf(sessionId), 'SandboxLost', {
      evidence: { kind: 'probe', message: 'gone' },
    });
    await client.exec(sessionId, 'again');
    await seen(sessionId, 'ExecExited');
    const epochs = (await factsOf(stack.store, sessionId, 'SandboxStarted')).map((f) => f.epoch);
    expect(epochs).toEqual([1, 3]);
  });
});

describe('when a server goes away', () => {
  it('NATS: the service says so, and goes on when it is back', async () => {
    const sessionId = await running('nats-away');
    runner.acts.StartExec = () => undefined;
    await client.exec(sessionId, 'through it');
    await until(() => runner.ordersOf('StartExec', sessionId).length > 0);
    runner.acts = {};
    await stack.nats.kill();
    await until(async () => 'nats' in (await readinessOf(service)).reasons, { timeoutMs: 20_000 });
    await stack.nats.restart();
    await until(async () => (await readinessOf(service)).ready, { timeoutMs: 20_000 });
    await seen(sessionId, 'ExecExited');
    await until(() => stack.bus.connected);
    expect((await client.exec(sessionId, 'next')).repeated).toBe(false);
  });

  it('the event store: commands fail with a reason, and succeed with the same key when it is back', async () => {
    const sessionId = await running('store-away');
    await stack.events.kill();
    const fault = await client.exec(sessionId, 'later', 'key').catch((error: unknown) => error);
    expect(fault).toBeInstanceOf(Failure);
    expect(fault).toMatchObject({ code: 'store_unavailable', retry: true });
    await until(async () => 'store' in (await readinessOf(service)).reasons);
    await stack.events.restart();
    await until(async () => (await readinessOf(service)).ready, { timeoutMs: 20_000 });
    await client.exec(sessionId, 'later', 'key');
    await seen(sessionId, 'ExecExited');
    expect(await factsOf(stack.store, sessionId, 'ExecIssued')).toHaveLength(1);
  });
});
