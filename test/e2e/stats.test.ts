import { until } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { describeOnStack } from '../support/describe-on-stack';

const MIB = 1024 * 1024;

describeOnStack()('what a session uses', (stack) => {
  let api: ApiClient;
  let session: string;

  beforeAll(async () => {
    ({ api } = stack);
    ({ id: session } = await stack.create({ name: 'stats', resources: { memoryMiB: 128 } }));
  }, 90_000);

  const run = async (command: string) =>
    (await api.post(`/v1/sessions/${session}/execs?wait=60s`, { command })).json;
  const happened = async (type: string) => {
    const { text } = await api.get(`/v1/sessions/${session}/events`);
    const events = text.split('\n').filter((line) => line !== '');
    return events.map((line) => JSON.parse(line)).filter((event) => event.type === type);
  };
  const holding = (mib: number, then: string) =>
    `exec perl -e '$m = "x" x (${mib} << 20); ${then}'`;

  it('is told by each exec once it has ended', async () => {
    const { id } = await run(holding(40, '1 while (times)[0] < 0.1'));
    const exits = await happened('ExecExited');
    const { usage } = exits.find(
      (one: { data: { execId: string } }) => one.data.execId === id,
    ).data;
    expect(usage).toEqual({
      cpuMs: expect.any(Number),
      peakMemoryBytes: expect.any(Number),
      readBytes: expect.any(Number),
      writtenBytes: expect.any(Number),
    });
    expect(usage.cpuMs).toBeGreaterThanOrEqual(100);
    expect(usage.peakMemoryBytes).toBeGreaterThan(40 * MIB);
  });

  it('is told by the sandbox while it runs', async () => {
    const before = (await happened('ActivityObserved')).length;
    const { status, json } = await api.get(`/v1/sessions/${session}/stats`);
    expect(status).toBe(200);
    expect(json).toMatchObject({
      sessionId: session,
      epoch: 1,
      memory: { limitBytes: 128 * MIB, kills: 0 },
      processes: { limit: 1024 },
    });
    expect(json.memory.peakBytes).toBeGreaterThan(40 * MIB);
    expect(json.cpu.usedMs).toBeGreaterThanOrEqual(100);
    expect(json.disk.totalBytes).toBeGreaterThan(json.disk.usedBytes);
    expect(await happened('ActivityObserved')).toHaveLength(before);
    const unknown = await api.get('/v1/sessions/nothing-0000/stats');
    expect(unknown.status).toBe(404);
  });

  it('is told for the session as a whole: processor, GiB-seconds, bytes and the peak', async () => {
    await run('head -c 1000000 /dev/urandom > /workspace/written; sync; echo five');
    const { usage } = (await api.get(`/v1/sessions/${session}`)).json;
    expect(usage.cpuSeconds).toBeGreaterThanOrEqual(0.1);
    expect(usage.peakMemoryBytes).toBeGreaterThan(40 * MIB);
    expect(usage.outputBytes).toBe(5);
    expect(usage.writtenBytes).toBeGreaterThanOrEqual(1_000_000);
    expect(usage.sandboxSeconds).toBeGreaterThan(0);
    expect(usage.memoryGibSeconds).toBeCloseTo(usage.sandboxSeconds / 8, 2);
    const stats = (await api.get(`/v1/sessions/${session}/stats`)).json;
    expect(stats.usage).toMatchObject({ cpuSeconds: usage.cpuSeconds, outputBytes: 5 });
    expect(stats.usage.memoryGibSeconds).toBeGreaterThan(usage.memoryGibSeconds);
  });

  it('is warned of before all of the memory is taken', async () => {
    const exec = await api.post(`/v1/sessions/${session}/execs`, {
      command: `exec python3 -c 'import time; held = b"x" * (112 << 20); time.sleep(1000)'`,
    });
    const [warning] = await until(
      async () => {
        const seen = await happened('LimitExceeded');
        return seen.length > 0 ? seen : undefined;
      },
      { timeoutMs: 30_000 },
    );
    expect(warning.data).toMatchObject({ limit: 'memory', level: 'warning', max: 128 * MIB });
    await api.post(`/v1/sessions/${session}/execs/${exec.json.id}/cancel`, { graceMs: 0 });
  }, 60_000);

  it('is not asked of a session that rests, which goes on resting', async () => {
    expect((await api.post(`/v1/sessions/${session}/suspend`)).status).toBeLessThan(300);
    await until(
      async () => (await api.get(`/v1/sessions/${session}`)).json.status === 'suspended',
      { timeoutMs: 30_000 },
    );
    const { status, json } = await api.get(`/v1/sessions/${session}/stats`);
    expect([status, json.code]).toEqual([409, 'not_running']);
    expect((await api.get(`/v1/sessions/${session}`)).json.status).toBe('suspended');
  }, 60_000);
});
