import { setTimeout as sleep } from 'node:timers/promises';
import { Failure, type OrderNamed } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import type { Sandbox } from '../../../test/support/reporter';
import {
  type ServiceProcess,
  type Stack,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Client, factsOf, outputOf } from './client';

const SESSIONS = 4;
const EXECS = 5;
const KILLS = 8;
const random = seededRandom(20_261_118);

let stack: Stack;
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  client = new Client(stack.bus);
});
afterAll(releaseAll);

/** As clients and runners do: the same request again until there is an answer. */
async function insist<T>(attempt: () => Promise<T>, isAnswer: (reply: T) => boolean): Promise<T> {
  for (;;) {
    const reply = await attempt().catch((fault: unknown) => {
      const isRefusal = fault instanceof Error && fault.name === 'Refusal';
      if (isRefusal || (fault instanceof Failure && !fault.retry)) throw fault;
      return null;
    });
    if (reply !== null && isAnswer(reply)) return reply;
    await sleep(50);
  }
}

const bytesOf = (line: string): Buffer =>
  seededRandom(Number(line)).bytes(20_000 + Number(line) * 1000);

/** A runner that keeps what is not acknowledged and says it again. */
const begun = new Set<string>();
async function runs(order: OrderNamed<'StartExec'>): Promise<void> {
  if (begun.has(order.data.execId)) return;
  const { execId, spec } = order.data;
  begun.add(execId);
  const sandbox: Sandbox = runner.sandboxOf(order.sessionId);
  const bytes = bytesOf(spec.command.kind === 'shell' ? spec.command.line : '');
  await insist(
    () => runner.report(sandbox, 'ExecStarted', { execId, pid: 1 }),
    ({ ok }) => ok,
  );
  for (let durable = 0; durable < bytes.length; ) {
    const from = Math.max(0, durable - 500);
    const reply = await insist(
      () => runner.write(sandbox, execId, from, bytes.subarray(from, from + 4000)),
      ({ ok }) => ok,
    );
    if (reply.ok) durable = reply.next[execId]?.stdout ?? durable;
  }
  await insist(
    () => runner.exit(sandbox, execId, { stdout: bytes.length }),
    ({ ok }) => ok,
  );
}

describe('killed at any moment, again and again', () => {
  it('services and the store lose nothing and do nothing twice', async () => {
    runner.acts.StartExec = runs;
    const services: ServiceProcess[] = [
      await startService(stack, 'a'),
      await startService(stack, 'b'),
    ];
    let over = false;
    const havoc = (async () => {
      for (let kill = 0; kill < KILLS && !over; kill += 1) {
        await sleep(200 + random.integer(800));
        const victim = random.integer(3);
        if (victim === 2) await stack.events.restart();
        else {
          await services[victim]?.kill('SIGKILL');
          services[victim] = await startService(stack, victim === 0 ? 'a' : 'b');
        }
      }
    })();
    const work = Array.from({ length: SESSIONS }, async (_, number) => {
      const { sessionId } = await insist(
        () => client.create(`chaos-${number}`, undefined, 'create'),
        () => true,
      );
      const execs: { execId: string; line: string }[] = [];
      for (let index = 0; index < EXECS; index += 1) {
        const line = String(number * 10 + index);
        const { execId } = await insist(
          () => client.exec(sessionId, line, line),
          () => true,
        );
        execs.push({ execId, line });
        await sleep(random.integer(600));
      }
      return { sessionId, execs };
    });
    const done = await Promise.all(work);
    await havoc;
    over = true;
    for (const { sessionId, execs } of done) {
      await until(
        async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === EXECS,
        { timeoutMs: 30_000, everyMs: 100 },
      );
      expect(await factsOf(stack.store, sessionId, 'ExecIssued')).toHaveLength(EXECS);
      expect(await factsOf(stack.store, sessionId, 'ExecStarted')).toHaveLength(EXECS);
      for (const { execId, line } of execs) {
        const found = await outputOf(stack.store, sessionId, execId, 'stdout');
        expect(found.equals(bytesOf(line))).toBe(true);
      }
    }
    expect(runner.faults).toEqual([]);
  }, 90_000);
});
