import {
  type Bus,
  BusTimeout,
  BusUnavailable,
  connectBus,
  type TraceContext,
} from '@vmux/messaging';
import { type Nats, releaseAll, startNats, until } from '@vmux/testing';

const text = (value: string) => Buffer.from(value);
const timeoutMs = 2_000;

describe('the bus', () => {
  let nats: Nats;
  let buses: Bus[];
  let faults: unknown[];
  const connect = async () => {
    const bus = await connectBus({ url: nats.url, name: 'test' }, (fault) => faults.push(fault));
    buses.push(bus);
    return bus;
  };

  beforeAll(async () => {
    nats = await startNats();
  });
  afterAll(releaseAll);
  beforeEach(() => {
    buses = [];
    faults = [];
  });
  afterEach(() => Promise.all(buses.map((bus) => bus.close())));

  it('carries a request and its answer byte for byte', async () => {
    const [asker, answerer] = [await connect(), await connect()];
    answerer.serve('echo', {}, async ({ data }) => data);
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    expect(Buffer.from(await asker.request('echo', bytes, { timeoutMs })).equals(bytes)).toBe(true);
  });

  it.each([
    ['a.*', 'a.b'],
    ['a.>', 'a.b'],
    ['a.>', 'a.b.c'],
    ['*.b.>', 'a.b.c.d'],
  ])('serves on %s what is sent to %s', async (pattern, subject) => {
    const bus = await connect();
    bus.serve(pattern, {}, async ({ data }) => data);
    expect(await bus.request(subject, text('x'), { timeoutMs })).toHaveLength(1);
  });

  it('says that nothing was done when nobody listens', async () => {
    const bus = await connect();
    await expect(bus.request('nobody', text('x'), { timeoutMs })).rejects.toThrow(BusUnavailable);
  });

  it('says that the outcome is not known when nobody answers in time', async () => {
    const bus = await connect();
    bus.serve('silent', {}, async () => undefined);
    await expect(bus.request('silent', text('x'), { timeoutMs: 50 })).rejects.toThrow(BusTimeout);
  });

  it('answers nothing for a handler that throws, tells of the fault and serves on', async () => {
    const bus = await connect();
    bus.serve('fragile', {}, async ({ data }) => {
      if (data.length === 0) throw new Error('empty');
      return data;
    });
    await expect(bus.request('fragile', text(''), { timeoutMs: 50 })).rejects.toThrow(BusTimeout);
    expect(faults).toEqual([new Error('empty')]);
    expect(await bus.request('fragile', text('x'), { timeoutMs })).toHaveLength(1);
  });

  it('gives each message of a queue group to one member', async () => {
    const bus = await connect();
    const taken = [0, 0];
    for (const member of [0, 1]) {
      (await connect()).serve('work', { queue: 'workers' }, async ({ data }) => {
        taken[member] = (taken[member] ?? 0) + 1;
        return data;
      });
    }
    await Promise.all(
      Array.from({ length: 50 }, () => bus.request('work', text('x'), { timeoutMs })),
    );
    expect((taken[0] ?? 0) + (taken[1] ?? 0)).toBe(50);
  });

  it('works on no more messages at once than it is told', async () => {
    const bus = await connect();
    let now = 0;
    let most = 0;
    bus.serve('narrow', { concurrency: 3 }, async ({ data }) => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setTimeout(resolve, 5));
      now -= 1;
      return data;
    });
    await Promise.all(
      Array.from({ length: 20 }, () => bus.request('narrow', text('x'), { timeoutMs })),
    );
    expect(most).toBe(3);
  });

  it('carries the trace of a request to its handler, and drops one that is malformed', async () => {
    const bus = await connect();
    bus.serve('traced', {}, async ({ trace }) => text(JSON.stringify(trace ?? null)));
    const ask = async (trace: TraceContext) =>
      JSON.parse(
        Buffer.from(await bus.request('traced', text(''), { timeoutMs, trace })).toString(),
      );
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    expect(await ask({ requestId: 'r-1', traceparent })).toEqual({ requestId: 'r-1', traceparent });
    expect(await ask({ requestId: 'spaces are no id' })).toBeNull();
  });

  it('finishes what is under way before it closes', async () => {
    const [asker, answerer] = [await connect(), await connect()];
    let started = false;
    answerer.serve('slow', {}, async ({ data }) => {
      started = true;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return data;
    });
    const answer = asker.request('slow', text('x'), { timeoutMs });
    await until(() => started);
    await answerer.close();
    expect(await answer).toHaveLength(1);
  });

  it('fails at once while NATS is away and works again when it is back', async () => {
    const bus = await connect();
    bus.serve('again', {}, async ({ data }) => data);
    await nats.kill();
    await until(() => !bus.connected);
    await expect(bus.request('again', text('x'), { timeoutMs })).rejects.toThrow(BusUnavailable);
    await nats.restart();
    await until(() => bus.connected);
    expect(await bus.request('again', text('x'), { timeoutMs })).toHaveLength(1);
  });
});
