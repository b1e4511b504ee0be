import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { EmbeddedStack } from '../support/embedded-stack';
import { firstProcessOf } from '../support/sandboxes';

const isRoot = process.getuid?.() === 0;

/** The README's `npm start`, from a fresh data directory, with real sandboxes. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('the embedded stack', () => {
  let stack: EmbeddedStack;
  let api: ApiClient;

  const created = async () => (await stack.create({ name: 'stack' })).id;
  const run = async (session: string, body: object) => {
    const reply = await api.post(`/v1/sessions/${session}/execs?wait=60s`, body);
    expect([200, 201]).toContain(reply.status);
    return reply.json;
  };
  const stopped = async (session: string) => {
    await api.post(`/v1/sessions/${session}/stop`);
    await until(async () => (await api.get(`/v1/sessions/${session}`)).json.status === 'stopped', {
      timeoutMs: 30_000,
    });
  };

  beforeAll(async () => {
    stack = await EmbeddedStack.start();
    ({ api } = stack);
  }, 90_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 90_000);

  it('runs a command in a sandbox and answers with what the sandbox reported', async () => {
    const session = await created();
    const exec = await run(session, { command: 'echo out; echo err >&2; exit 42' });
    expect(exec).toMatchObject({
      exit: { kind: 'exited', code: 42 },
      output: { stdout: { text: 'out\n' }, stderr: { text: 'err\n' } },
    });
    const stages = await until(async () => {
      const { json } = await api.get(`/v1/sessions/${session}`);
      return json.stages.length >= 3 && json.stages.map(({ stage }: { stage: string }) => stage);
    });
    expect([...stages].sort()).toEqual(['first_output', 'provisioned', 'started']);
    await stopped(session);
  }, 60_000);

  it('keeps a session’s output readable, byte for byte, after its sandbox is gone', async () => {
    const session = await created();
    const exec = await run(session, {
      command: 'head -c 3000000 /dev/urandom | tee copy; sha256sum < copy >&2',
    });
    await stopped(session);
    const log = await api.raw(`/v1/sessions/${session}/logs?exec=${exec.id}&stream=stdout`);
    expect(log.bytes).toHaveLength(3_000_000);
    const digest = createHash('sha256').update(log.bytes).digest('hex');
    const told = await api.raw(`/v1/sessions/${session}/logs?exec=${exec.id}&stream=stderr`);
    expect(told.bytes.toString()).toBe(`${digest}  -\n`);
  }, 90_000);

  it('carries sessions, sandboxes and running commands over its own restart', async () => {
    const session = await created();
    const file = await run(session, { command: 'echo kept > /workspace/file' });
    expect(file.exit).toEqual({ kind: 'exited', code: 0 });
    const slow = await api.post(`/v1/sessions/${session}/execs`, {
      command: 'for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done; exit 7',
    });
    await stack.killedAndStartedAgain();
    ({ api } = stack);
    const ended = await until(
      async () => {
        const { json } = await api.get(`/v1/sessions/${session}/execs/${slow.json.id}`);
        return json?.exit && json;
      },
      { timeoutMs: 30_000 },
    );
    expect(ended.exit).toEqual({ kind: 'exited', code: 7 });
    const log = await api.raw(`/v1/sessions/${session}/logs?exec=${slow.json.id}&stream=stdout`);
    expect(log.bytes.toString()).toBe('1\n2\n3\n4\n5\n6\n7\n8\n');
    expect((await run(session, { command: 'cat /workspace/file' })).output.stdout.text).toBe(
      'kept\n',
    );
    await stopped(session);
  }, 120_000);

  it('says that a command’s outcome is unknown when its sandbox is killed, never that it succeeded', async () => {
    const session = await created();
    const exec = await api.post(`/v1/sessions/${session}/execs`, {
      command: 'echo begun; sleep 1000',
    });
    await until(async () => (await api.raw(`/v1/sessions/${session}/logs`)).bytes.length > 0, {
      timeoutMs: 30_000,
    });
    const pid = firstProcessOf(join(stack.dataDir, 'runner/ns/s'), session);
    process.kill(pid, 'SIGKILL');
    const ended = await until(
      async () => {
        const { json } = await api.get(`/v1/sessions/${session}/execs/${exec.json.id}`);
        return json.status === 'unknown' && json;
      },
      { timeoutMs: 30_000 },
    );
    expect(ended.sizes.stdout).toBe(6);
    await api.post(`/v1/sessions/${session}/stop`);
  }, 90_000);
});
