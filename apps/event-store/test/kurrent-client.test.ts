import { jsonEvent, KurrentDBClient } from '@kurrent/kurrentdb-client';
import { Bench } from './server';

// In a file of its own: the two clients' generated messages cannot live in one process.

const bench = new Bench();
afterAll(() => bench.clean());

describe('a KurrentDB client', () => {
  it('appends, reads and subscribes', async () => {
    const server = await bench.start();
    const url = server.url().replace('esdb:', 'kurrentdb:');
    const client = KurrentDBClient.connectionString(url);
    try {
      const sent = jsonEvent({ type: 'happened', data: { b: 2 } });
      const appended = await client.appendToStream('kurrent', [
        sent,
        jsonEvent({ type: 'more', data: {} }),
      ]);
      expect(appended.nextExpectedRevision).toBe(1n);
      const read = [];
      for await (const { event: one } of client.readStream('kurrent')) read.push(one);
      expect(read).toMatchObject([
        { id: sent.id, type: 'happened', data: { b: 2 }, revision: 0n },
        { type: 'more', revision: 1n },
      ]);
      const types: string[] = [];
      for await (const { event: one } of client.subscribeToStream('kurrent')) {
        types.push(one?.type ?? '');
        if (types.length === 2) {
          await client.appendToStream('kurrent', jsonEvent({ type: 'live', data: {} }));
        }
        if (types.length === 3) break;
      }
      expect(types).toEqual(['happened', 'more', 'live']);
    } finally {
      await client.dispose();
    }
  });
});
