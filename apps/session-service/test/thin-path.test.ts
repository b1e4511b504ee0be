import { logStream } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
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
let service: ServiceProcess;
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  service = await startService(stack);
  runner = startRunner(stack);
  client = new Client(stack.bus);
});
afterAll(releaseAll);

describe('a session service', () => {
  it('takes a command all the way: created, placed, started, run, its output kept, exited, stopped', async () => {
    const { sessionId, repeated } = await client.create('thin');
    expect(repeated).toBe(false);
    await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
    const { execId } = await client.exec(sessionId, 'hello');
    await until(async () => (await factsOf(stack.store, sessionId, 'ExecExited')).length === 1);
    expect((await outputOf(stack.store, sessionId, execId, 'stdout')).toString()).toBe('hello');
    await client.ask('StopSession', sessionId, { graceMs: null, force: false });
    await until(async () => (await historyOf(stack.store, sessionId)).at(-1) === 'SessionStopped');
    expect(runner.faults).toEqual([]);
    expect(await historyOf(stack.store, sessionId)).toEqual([
      'SessionCreated',
      'SandboxRequested',
      'SandboxStarted',
      'ExecIssued',
      'ExecStarted',
      'ExecExited',
      'StopRequested',
      'SandboxReleased',
      'SessionStopped',
    ]);
    const marks: unknown[] = [];
    for await (const { type, data } of stack.store.read(logStream(sessionId)))
      if (type === 'LogMark') marks.push(data);
    expect(marks.at(-1)).toMatchObject({ epoch: 1, closed: true });
  });

  it('is ready while it can do its work', async () => {
    await until(async () => (await readinessOf(service)).ready);
  });

  it('finishes and exits with 0 when it is asked to stop', async () => {
    const other = await startService(stack, 'leaving');
    expect(await other.stop()).toEqual({ code: 0, signal: null });
  });

  it('says what to set when a setting is missing', async () => {
    await expect(startService(stack, 'broken', { VMUX_KEYS_DIR: '' })).rejects.toThrow(
      'set VMUX_KEYS_DIR',
    );
  });
});
