import { randomUUID } from 'node:crypto';
import { releaseAll, releaseLater, startEventStore } from '@vmux/testing';
import { connectEventStore } from '../src';

const HOUR_MS = 3_600_000;

afterAll(releaseAll);
afterEach(() => {
  jest.restoreAllMocks();
});

describe('an event store whose clock is not its client’s', () => {
  it.each([-HOUR_MS, HOUR_MS])('takes appends from a clock that is off by %d ms', async (offMs) => {
    const server = await startEventStore({ insecure: true });
    const store = connectEventStore({ url: server.url, timeoutMs: 2_000 });
    releaseLater(() => store.close());
    const { now } = Date;
    jest.spyOn(Date, 'now').mockImplementation(() => now() + offMs);
    const event = { id: randomUUID(), type: 'Happened', data: {} };
    expect(await store.append('clocks', 'none', [event])).toMatchObject({ revision: 0 });
  });
});
