import { randomUUID } from 'node:crypto';
import { Failure, sessionStream } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  readinessOf,
  type ServiceProcess,
  type Stack,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Client, factsOf, historyOf, outputOf } from './client';

let stack: Stack;
let services: ServiceProcess[];
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  services = await Promise.all([startService(stack, 'one'), startService(stack, 'two')]);
  runner = startRunner(stack);
  client = new Client(stack.bus);
});
afterAll(releaseAll);

const running = async (name: string): Promise<string> => {
  const { sessionId } = await client.create(name);
  await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
  return sessionId;
};

describe('two session services at once', () => {
  it('take commands for one session without losing or doubling any', async () => {
    const sessionId = await running('shared');
    const lines = Array.from({ length: 60 }, (_, index) => `line ${index}`);
    const answers = await Promise.all(
      lines.flatMap((line) => [
        client.exec(sessionId, line, line),
        client.exec(sessionId, line, line),
      ]),
    );
    await until(
      async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === lines.length,
      { timeoutMs: 20_000 },
    );
    expect(await factsOf(stack.store, sessionId, 'ExecIssued')).toHaveLength(lines.length);
    expect(await factsOf(stack.store, sessionId, 'ExecStarted')).toHaveLength(lines.length);
    for (const { execId, revision } of answers)
      expect(answers.filter((other) => other.execId === execId)).toEqual([
        expect.objectContaining({ revision }),
        expect.objectContaining({ revision }),
      ]);
    expect(runner.faults).toEqual([]);
  });

  it('both take part', async () => {
    for (const { ready } of services) {
      const response = await fetch(`http://127.0.0.1:${ready.healthPort}/metrics`);
      const text = await response.text();
      const counts = [...text.matchAll(/request_seconds_count\{kind="command".*\} (\d+)/g)];
      expect(counts.reduce((sum, [, count]) => sum + Number(count), 0)).toBeGreaterThan(0);
    }
  });

  it('take one exec’s output in turns, and it comes out exact', async () => {
    const sessionId = await running('alternating');
    runner.acts.StartExec = () => undefined;
    const { execId } = await client.exec(sessionId, 'x');
    const sandbox = runner.sandboxOf(sessionId);
    await runner.report(sandbox, 'ExecStarted', { execId, pid: 1 });
    const bytes = seededRandom(11).bytes(1_000_000);
    let durable = 0;
    while (durable < bytes.length) {
      const frames = [0, 1, 2, 3].map((index) => durable + index * 20_000);
      const replies = await Promise.all(
        frames.map((from) =>
          runner.write(sandbox, execId, from, bytes.subarray(from, from + 20_000)),
        ),
      );
      for (const reply of replies)
        if (reply.ok) durable = Math.max(durable, reply.next[execId]?.stdout ?? 0);
    }
    expect(await runner.exit(sandbox, execId, { stdout: bytes.length })).toMatchObject({
      ok: true,
    });
    const found = await outputOf(stack.store, sessionId, execId, 'stdout');
    expect(found.equals(bytes)).toBe(true);
    runner.acts = {};
  });

  it('share the sending of orders, and when one is killed the other sends all of them', async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, (_, n) => running(`taken-over-${n}`)));
    runner.acts.StartExec = () => undefined;
    await Promise.all(ids.map((id) => client.exec(id, 'x')));
    await until(() => new Set(runner.ordersOf('StartExec').map((o) => o.sessionId)).size >= 8);
    runner.acts = {};
    await services[0]?.kill('SIGKILL');
    for (const id of ids)
      await until(async () => (await factsOf(stack.store, id, 'ExecExited')).length === 1, {
        timeoutMs: 20_000,
      });
  });
});

describe('an event that this version does not know', () => {
  it('is no ground for a decision: the command fails and the service is not ready', async () => {
    const sessionId = await running('from-the-future');
    const [known] = services.slice(1);
    if (!known) throw new Error('the second service is gone');
    await until(async () => (await readinessOf(known)).ready);
    await stack.store.append(sessionStream(sessionId), 'any', [
      {
        id: randomUUID(),
        type: 'SessionTeleported',
        data: { at: Date.now() },
        metadata: { principal: 'system', correlationId: 'future', version: 1 },
      },
    ]);
    const fault = await client.exec(sessionId, 'true').catch((error: unknown) => error);
    expect(fault).toBeInstanceOf(Failure);
    expect(fault).toMatchObject({ code: 'unknown_event' });
    expect(await readinessOf(known)).toMatchObject({
      ready: false,
      reasons: { history: expect.stringContaining('SessionTeleported') },
    });
    expect((await historyOf(stack.store, sessionId)).at(-1)).toBe('SessionTeleported');
  });
});
