import { randomUUID } from 'node:crypto';
import { StreamNotFound } from '@vmux/event-store';
import {
  commandSubject,
  logStream,
  Refusal,
  scopedKey,
  sessionIdOf,
  sessionStream,
} from '@vmux/events';
import { KeyDirectory, type KeyStore } from '@vmux/key-store';
import { decodeJson } from '@vmux/messaging';
import { releaseAll, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type ServiceProcess,
  type Stack,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Client, execSpecOf, factsOf, historyOf, OWNER, specOf } from './client';

let stack: Stack;
let runner: FakeRunner;
let client: Client;
let keys: KeyStore;
let service: ServiceProcess;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  client = new Client(stack.bus);
  keys = await KeyDirectory.at(stack.keysDir);
  service = await startService(stack, 'one', { VMUX_LOG_LEVEL: 'debug' });
});
afterAll(releaseAll);

const refusalOf = async (answer: Promise<unknown>): Promise<string> =>
  answer.then(
    () => 'accepted',
    (fault) => (fault instanceof Refusal ? fault.code : String(fault)),
  );

const running = async (name: string, spec = specOf()): Promise<string> => {
  const { sessionId } = await client.create(name, spec);
  await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
  return sessionId;
};

describe('a command', () => {
  it('finds the same answer under the same key and appends nothing more', async () => {
    const sessionId = await running('once');
    const first = await client.exec(sessionId, 'true', 'key-1');
    await until(async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === 1);
    const again = await Promise.all([1, 2, 3].map(() => client.exec(sessionId, 'true', 'key-1')));
    for (const answer of again) expect(answer).toEqual({ ...first, repeated: true });
    expect(await factsOf(stack.store, sessionId, 'ExecIssued')).toHaveLength(1);
  });

  it('is refused under a key that was used for another request', async () => {
    const sessionId = await running('reused');
    await client.exec(sessionId, 'true', 'key-1');
    expect(await refusalOf(client.exec(sessionId, 'false', 'key-1'))).toBe('key_reused');
  });

  it('creates one session however often it comes, also at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => client.create('twice', specOf(), 'same')),
    );
    expect(new Set(answers.map(({ sessionId }) => sessionId)).size).toBe(1);
    expect(new Set(answers.map(({ position }) => position)).size).toBe(1);
    expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1);
  });

  it('moves on to the next id when another session has it, and takes its environment along', async () => {
    const idUnder = (clientKey: string) =>
      sessionIdOf('collide', OWNER, scopedKey(OWNER, 'POST /v1/sessions', clientKey), 0);
    const taken = idUnder('first');
    let other = 0;
    while (idUnder(`other-${other}`) !== taken) other += 1;
    await client.create('collide', specOf(), 'first');
    const env = await keys.seal(taken, { TOKEN: 'clear-value-1' });
    const second = await client.create('collide', specOf({ env }), `other-${other}`);
    expect(second.sessionId).not.toBe(taken);
    const order = await until(() => runner.ordersOf('CreateSandbox', second.sessionId)[0]);
    expect(order).toMatchObject({ data: { env: { TOKEN: 'clear-value-1' } } });
    expect(await client.create('collide', specOf({ env }), `other-${other}`)).toEqual({
      ...second,
      repeated: true,
    });
  });

  it('shows environment values to the runner and never to the history', async () => {
    const clientKey = randomUUID();
    const key = scopedKey(OWNER, 'POST /v1/sessions', clientKey);
    const id = sessionIdOf('secret', OWNER, key, 0);
    const env = await keys.seal(id, { A: 'session-secret', B: 'session-b' });
    const { sessionId } = await client.create('secret', specOf({ env }), clientKey);
    const execEnv = await keys.seal(id, { B: 'exec-secret' });
    await client.exec(sessionId, 'env', 'k', { env: execEnv });
    const order = await until(() => runner.ordersOf('StartExec', sessionId)[0]);
    expect(order).toMatchObject({ data: { env: { A: 'session-secret', B: 'exec-secret' } } });
    for await (const event of stack.store.read(sessionStream(sessionId)))
      expect(JSON.stringify(event.data)).not.toContain('-secret');
    expect(service.output()).not.toContain('-secret');
  });

  it('tells nobody of a session that is another owner’s', async () => {
    const sessionId = await running('private');
    const stranger = new Client(stack.bus, 'mallory');
    expect(await refusalOf(stranger.exec(sessionId, 'true'))).toBe('session_not_found');
    expect(await refusalOf(client.exec('nobody-0000', 'true'))).toBe('session_not_found');
  });

  it('is refused for what no runner offers', async () => {
    const answer = client.create('nowhere', specOf(), randomUUID(), 'cloud');
    expect(await refusalOf(answer)).toBe('no_placement');
  });

  it('that cannot be read is answered as malformed, and the next one is served', async () => {
    for (const bytes of ['', 'garbage', '{"type":"IssueExec"}', '[]', '\u0000']) {
      const reply = await stack.bus.request(commandSubject('IssueExec'), Buffer.from(bytes), {
        timeoutMs: 5000,
      });
      expect(decodeJson(reply)).toMatchObject({ ok: false, refused: { code: 'malformed' } });
    }
    expect(await refusalOf(client.exec('nobody-0000', 'true'))).toBe('session_not_found');
  });

  it('that fires a deadline is not taken from outside', async () => {
    const reply = await stack.bus.request(
      commandSubject('FireDeadline'),
      Buffer.from(JSON.stringify({ type: 'FireDeadline', data: {} })),
      { timeoutMs: 5000 },
    );
    expect(decodeJson(reply)).toMatchObject({ refused: { code: 'malformed' } });
  });
});

describe('deleting a session', () => {
  it('destroys its key, drops its streams and leaves the id taken for ever', async () => {
    const clientKey = randomUUID();
    const key = scopedKey(OWNER, 'POST /v1/sessions', clientKey);
    const env = await keys.seal(sessionIdOf('gone', OWNER, key, 0), { TOKEN: 'x' });
    const { sessionId } = await client.create('gone', specOf({ env }), clientKey);
    await client.exec(sessionId, 'some output');
    await until(async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === 1);
    expect(await refusalOf(client.ask('DeleteSession', sessionId, { force: false }))).toBe(
      'session_live',
    );
    await client.ask('DeleteSession', sessionId, { force: true });
    await until(async () => {
      const left = await historyOf(stack.store, sessionId);
      return left.length === 1 && left[0] === 'SessionDeleted';
    });
    const readLog = async () => {
      for await (const event of stack.store.read(logStream(sessionId))) return event;
      return null;
    };
    await until(async () =>
      readLog().then(
        (event) => event === null,
        (fault) => fault instanceof StreamNotFound,
      ),
    );
    await expect(keys.unseal(sessionId, env)).rejects.toThrow('destroyed');
    expect(await refusalOf(client.exec(sessionId, 'true'))).toBe('session_deleted');
    expect(await refusalOf(client.create('gone', specOf({ env }), clientKey))).toBe(
      'session_deleted',
    );
  });
});

describe('forking a session', () => {
  it('creates every child once, from the checkpoint and with the environment', async () => {
    const clientKey = randomUUID();
    const key = scopedKey(OWNER, 'POST /v1/sessions', clientKey);
    const env = await keys.seal(sessionIdOf('parent', OWNER, key, 0), { TOKEN: 'inherited' });
    const { sessionId } = await client.create('parent', specOf({ env }), clientKey);
    await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
    await client.ask('ForkSession', sessionId, {
      forkId: 'f0123456789ab',
      checkpointId: null,
      newCheckpointId: 'c0123456789ab',
      name: 'child',
      count: 3,
      provider: null,
    });
    const forked = await until(async () => {
      const found = await factsOf(stack.store, sessionId, 'Forked');
      return found.length === 3 && found;
    });
    expect(new Set(forked.map(({ child }) => child)).size).toBe(3);
    for (const { child } of forked) {
      const order = await until(() => runner.ordersOf('CreateSandbox', String(child))[0]);
      expect(order).toMatchObject({
        data: { env: { TOKEN: 'inherited' }, restore: { checkpointId: 'c0123456789ab' } },
      });
      const [created] = await factsOf(stack.store, String(child), 'SessionCreated');
      expect(created).toMatchObject({ owner: OWNER, lineage: { parent: sessionId } });
    }
  });
});

describe('an exec', () => {
  it('that was issued before there is a sandbox waits for it', async () => {
    runner.acts.CreateSandbox = () => undefined;
    const { sessionId } = await client.create('waits');
    const { execId } = await client.exec(sessionId, 'later');
    const order = await until(() => runner.ordersOf('CreateSandbox', sessionId)[0]);
    expect(runner.ordersOf('StartExec', sessionId)).toEqual([]);
    const sandbox = { sessionId, epoch: order.epoch, instance: 'i-late' };
    runner.sandboxes.set(sessionId, sandbox);
    runner.acts.CreateSandbox = undefined;
    await runner.report(sandbox, 'SandboxReady', { base: null, restoredDigest: null });
    await until(async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === 1);
    expect(await factsOf(stack.store, sessionId, 'ExecDispatched')).toMatchObject([{ execId }]);
  });

  it('is cancelled by an order that repeats until it is answered', async () => {
    const sessionId = await running('cancelled');
    runner.acts.StartExec = async ({ data: { execId } }) => {
      await runner.report(runner.sandboxOf(sessionId), 'ExecStarted', { execId, pid: 1 });
    };
    let ignored = 2;
    runner.acts.CancelExec = async ({ data: { execId } }) => {
      if (ignored-- > 0) return;
      await runner.report(runner.sandboxOf(sessionId), 'ExecExited', {
        execId,
        outcome: { kind: 'signalled', signal: 'SIGTERM' },
        sizes: { stdout: 0, stderr: 0, pty: 0 },
        usage: null,
      });
    };
    const { execId } = await client.exec(sessionId, 'sleep');
    await until(async () => (await factsOf(stack.store, sessionId, 'ExecStarted')).length === 1);
    await client.ask('CancelExec', sessionId, { execId, graceMs: 0 });
    const [exit] = await until(
      async () => {
        const found = await factsOf(stack.store, sessionId, 'ExecExited');
        return found.length === 1 && found;
      },
      { timeoutMs: 15_000 },
    );
    expect(exit).toMatchObject({ outcome: { kind: 'signalled', signal: 'SIGTERM' } });
    runner.acts = {};
    expect(
      await refusalOf(client.ask('IssueExec', sessionId, { execId, spec: execSpecOf('x') })),
    ).toBe('id_taken');
  });
});
