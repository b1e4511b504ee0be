import { randomUUID } from 'node:crypto';
import type { JsonObject } from '@vmux/event-store';
import { logStream, type OutputReply } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import { chunksOf, type Sandbox } from '../../../test/support/reporter';
import { type Stack, startRunner, startService, startStack } from '../../../test/support/stack';
import { Client, factsOf, historyOf, outputOf, specOf } from './client';

let stack: Stack;
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  client = new Client(stack.bus);
  runner.acts.StartExec = async ({ sessionId, data: { execId } }) => {
    await runner.report(runner.sandboxOf(sessionId), 'ExecStarted', { execId, pid: 1 });
  };
  await startService(stack);
});
afterAll(releaseAll);

const begun = async (
  name: string,
  spec = specOf(),
): Promise<Sandbox & { readonly execId: string }> => {
  const { sessionId } = await client.create(name, spec);
  const { execId } = await client.exec(sessionId, 'writes');
  await until(async () => (await historyOf(stack.store, sessionId)).includes('ExecStarted'));
  return { ...runner.sandboxOf(sessionId), execId };
};

const eventsOf = async (sessionId: string, type: string) => {
  const found: { revision: number; data: unknown }[] = [];
  for await (const event of stack.store.read(logStream(sessionId)))
    if (event.type === type) found.push({ revision: event.revision, data: event.data });
  return found;
};

describe('output', () => {
  it('comes out byte for byte, however it was cut, repeated and reordered on the way', async () => {
    const exec = await begun('exact');
    const { sessionId, execId } = exec;
    const random = seededRandom(7);
    const bytes = { stdout: random.bytes(3_000_000), stderr: random.bytes(700_000) };
    const durable = { stdout: 0, stderr: 0 };
    const streams = ['stdout', 'stderr'] as const;
    const note = (reply: OutputReply) => {
      if (!reply.ok) throw new Error(JSON.stringify(reply));
      for (const stream of streams)
        durable[stream] = Math.max(durable[stream], reply.next[execId]?.[stream] ?? 0);
    };
    const gaps = () => streams.filter((stream) => durable[stream] < bytes[stream].length);
    while (gaps().length > 0) {
      // Several frames at once, some of what is there already and some of what lies ahead.
      const frames = Array.from({ length: 6 }, () => {
        const stream = random.pick(gaps());
        const from = Math.max(0, durable[stream] + random.pick([0, 0, 0, -50_000, 90_000]));
        const to = Math.min(bytes[stream].length, from + 1 + random.integer(200_000));
        const size = random.pick([1000, 30_000, 65_536]);
        return chunksOf(execId, from, bytes[stream].subarray(from, to), stream, size);
      });
      const replies = await Promise.all(frames.map((items) => runner.output(exec, items)));
      replies.forEach(note);
    }
    for (const stream of streams) {
      const found = await outputOf(stack.store, sessionId, execId, stream);
      expect(found.equals(bytes[stream])).toBe(true);
    }
    const sizes = { stdout: bytes.stdout.length, stderr: bytes.stderr.length };
    expect(await runner.exit(exec, execId, sizes)).toMatchObject({ ok: true });
  });

  it('has a mark at every 64th revision', async () => {
    const exec = await begun('marked');
    for (let index = 0; index < 200; index += 1)
      await runner.write(exec, exec.execId, index, Buffer.from('x'));
    const marks = (await eventsOf(exec.sessionId, 'LogMark')).map(({ revision }) => revision);
    expect(marks).toEqual([0, 64, 128, 192]);
  });

  it('that leaves out bytes is refused with the offset that is expected', async () => {
    const exec = await begun('gap');
    await runner.write(exec, exec.execId, 0, Buffer.from('0123456789'));
    const reply = await runner.write(exec, exec.execId, 20, Buffer.from('later'));
    expect(reply).toMatchObject({
      ok: true,
      next: { [exec.execId]: { stdout: 10 } },
      refused: { code: 'output_gap', facts: { stream: 'stdout', expected: 10 } },
    });
  });

  it('that no longer exists becomes an explicit gap', async () => {
    const exec = await begun('lost-bytes');
    await runner.output(exec, [
      {
        kind: 'gap',
        execId: exec.execId,
        stream: 'stdout',
        from: 0,
        to: 100,
        reason: 'the spool was full',
        at: Date.now(),
      },
      ...chunksOf(exec.execId, 100, Buffer.from('after')),
    ]);
    expect(await eventsOf(exec.sessionId, 'LogGap')).toMatchObject([
      { data: { from: 0, to: 100, reason: 'the spool was full' } },
    ]);
    expect(await runner.exit(exec, exec.execId, { stdout: 105 })).toMatchObject({ ok: true });
  });

  it('holds the exit back until all of it is there', async () => {
    const exec = await begun('early-exit');
    await runner.write(exec, exec.execId, 0, Buffer.from('half'));
    expect(await runner.exit(exec, exec.execId, { stdout: 8 })).toMatchObject({
      refused: { code: 'log_behind', facts: { stream: 'stdout', expected: 4 } },
    });
    await runner.write(exec, exec.execId, 4, Buffer.from('more'));
    expect(await runner.exit(exec, exec.execId, { stdout: 8 })).toMatchObject({ ok: true });
    expect(await runner.exit(exec, exec.execId, { stdout: 8 })).toMatchObject({ ok: true });
    expect(await factsOf(stack.store, exec.sessionId, 'ExecExited')).toMatchObject([
      { sizes: { stdout: 8 } },
    ]);
    const late = await runner.write(exec, exec.execId, 4, Buffer.from('more'));
    expect(late).toMatchObject({ ok: true, refused: null });
  });

  it('is taken from nobody but the runner that has the sandbox, in its epoch and instance', async () => {
    const exec = await begun('fenced');
    const items = chunksOf(exec.execId, 0, Buffer.from('x'));
    const codes: unknown[] = [];
    const stranger = startRunner(stack, { runnerId: 'fake-2', capabilities: [], maxSandboxes: 0 });
    for (const reply of [
      await runner.output({ ...exec, epoch: exec.epoch + 1 }, items),
      await runner.output({ ...exec, instance: 'another' }, items),
      await stranger.output(exec, items),
      await runner.report({ ...exec, epoch: 9 }, 'ExecStarted', { execId: exec.execId, pid: 1 }),
      await stranger.exit(exec, exec.execId),
    ])
      codes.push('refused' in reply && reply.refused?.code);
    await stranger.stop();
    expect(codes).toEqual([
      'stale_epoch',
      'stale_epoch',
      'wrong_runner',
      'stale_epoch',
      'wrong_runner',
    ]);
    expect(await factsOf(stack.store, exec.sessionId, 'ExecExited')).toEqual([]);
  });

  it('ends where the log was closed when the sandbox is lost', async () => {
    const exec = await begun('lost');
    await runner.write(exec, exec.execId, 0, Buffer.from('until here'));
    await runner.report(exec, 'SandboxLost', { evidence: { kind: 'probe', message: 'gone' } });
    expect(await factsOf(stack.store, exec.sessionId, 'ExecOutcomeUnknown')).toMatchObject([
      { execId: exec.execId, reason: 'sandbox_lost', sizes: { stdout: 10 } },
    ]);
    const marks = await eventsOf(exec.sessionId, 'LogMark');
    expect(marks.at(-1)).toMatchObject({ data: { epoch: 1, closed: true } });
    const late = await runner.write(exec, exec.execId, 10, Buffer.from('too late'));
    expect(late).toMatchObject({ ok: false, refused: { code: 'stale_epoch' } });
    expect((await outputOf(stack.store, exec.sessionId, exec.execId, 'stdout')).length).toBe(10);
  });

  it('ends as unknown where it stands when the session is stopped by force', async () => {
    const exec = await begun('forced');
    await runner.write(exec, exec.execId, 0, Buffer.from('so far'));
    runner.acts.DestroySandbox = () => undefined;
    await client.ask('StopSession', exec.sessionId, { graceMs: 0, force: true });
    runner.acts.DestroySandbox = undefined;
    expect(await factsOf(stack.store, exec.sessionId, 'ExecOutcomeUnknown')).toMatchObject([
      { execId: exec.execId, sizes: { stdout: 6 } },
    ]);
    const history = await historyOf(stack.store, exec.sessionId);
    expect(history).toContain('SessionStopped');
    const late = await runner.write(exec, exec.execId, 6, Buffer.from('more'));
    expect(late).toMatchObject({ ok: false, refused: { code: 'stale_epoch' } });
    // Its runner is told to destroy it, also after the session is over.
    await until(async () =>
      (await historyOf(stack.store, exec.sessionId)).includes('SandboxReleased'),
    );
  });

  it('to a log that was closed without its loss being recorded gets the loss recorded', async () => {
    const exec = await begun('half-lost');
    await runner.write(exec, exec.execId, 0, Buffer.from('before'));
    const [last] = (await eventsOf(exec.sessionId, 'LogMark')).slice(-1);
    const mark = last?.data as JsonObject;
    await stack.store.append(logStream(exec.sessionId), 'any', [
      {
        id: randomUUID(),
        type: 'LogMark',
        data: {
          ...mark,
          closed: true,
          sessionOffset: 6,
          streams: {
            [exec.execId]: { next: { stdout: 6, stderr: 0, pty: 0 }, resizes: 0, issued: 2 },
          },
        },
      },
    ]);
    const reply = await runner.write(exec, exec.execId, 6, Buffer.from('after'));
    expect(reply).toMatchObject({ ok: false, refused: { code: 'log_closed' } });
    await until(async () =>
      (await historyOf(stack.store, exec.sessionId)).includes('ExecOutcomeUnknown'),
    );
    expect(await factsOf(stack.store, exec.sessionId, 'SandboxLost')).toMatchObject([
      { evidence: { kind: 'log_closed' } },
    ]);
    expect(await factsOf(stack.store, exec.sessionId, 'ExecOutcomeUnknown')).toMatchObject([
      { sizes: { stdout: 6 } },
    ]);
  });

  it('beyond the budget drops the oldest and says so', async () => {
    const log = { budgetBytes: 1_048_576, whenFull: 'truncate' } as const;
    const exec = await begun('budget', specOf({ log }));
    const bytes = seededRandom(3).bytes(1_500_000);
    for (let from = 0; from < bytes.length; from += 60_000)
      await runner.write(exec, exec.execId, from, bytes.subarray(from, from + 60_000));
    const truncations = await eventsOf(exec.sessionId, 'LogTruncated');
    expect(truncations.length).toBeGreaterThan(0);
    const firstRevision = await until(async () => {
      for await (const { revision } of stack.store.read(logStream(exec.sessionId))) return revision;
      return 0;
    });
    const { data } = truncations.at(-1) ?? {};
    expect(data).toMatchObject({ revision: firstRevision });
    const found: Buffer[] = [];
    for await (const { type, data: chunk } of stack.store.read(logStream(exec.sessionId)))
      if (type === 'LogChunk' && Buffer.isBuffer(chunk)) found.push(chunk);
    const kept = Buffer.concat(found);
    expect(kept.length).toBeLessThanOrEqual(1_048_576);
    expect(bytes.subarray(-kept.length).equals(kept)).toBe(true);
  });

  it('of a session that never stops leaves room for others', async () => {
    const [loud, quiet] = [await begun('loud'), await begun('quiet')];
    const bytes = seededRandom(1).bytes(400_000);
    const answered: string[] = [];
    const flood = Array.from({ length: 10 }, async (_, index) => {
      const reply = await runner.write(loud, loud.execId, index * 400_000, bytes);
      answered.push('loud');
      return reply;
    });
    const small = runner.write(quiet, quiet.execId, 0, Buffer.from('quiet')).then((reply) => {
      answered.push('quiet');
      return reply;
    });
    expect(await small).toMatchObject({ ok: true, refused: null });
    await Promise.all(flood);
    expect(answered.at(-1)).toBe('loud');
  });

  it('from frames that cannot be read is refused as malformed', async () => {
    const reply = await stack.bus.request(
      `vmux.reports.${runner.runnerId}.output`,
      Buffer.from('nonsense'),
      { timeoutMs: 5000 },
    );
    expect(JSON.parse(Buffer.from(reply).toString())).toMatchObject({
      refused: { code: 'malformed' },
    });
  });
});
