import { randomBytes, randomUUID } from 'node:crypto';
import { binaryEvent, EventStoreDBClient, FORWARDS, jsonEvent, START } from '@eventstore/db-client';
import { connectEventStore, type EventStore, WrongRevision } from '@vmux/event-store';
import { type EventStoreServer, releaseAll, startEventStore } from '@vmux/testing';

/** The port speaks the protocol itself; here the vendor's unmodified client says that it speaks it right. */
describe('the port and the vendor’s own client on one server', () => {
  let server: EventStoreServer;
  let port: EventStore;
  let vendor: EventStoreDBClient;
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

  beforeAll(async () => {
    server = await startEventStore();
    port = connectEventStore({ url: server.url });
    vendor = EventStoreDBClient.connectionString(server.url);
  });
  afterAll(async () => {
    await port.close();
    await vendor.dispose();
    await releaseAll();
  });

  const seenByVendor = async (stream: string) => {
    const seen = [];
    for await (const { event } of vendor.readStream(stream, {
      direction: FORWARDS,
      fromRevision: START,
    })) {
      if (event) seen.push({ ...event, revision: Number(event.revision) });
    }
    return seen;
  };

  it('agree on what the port appended: ids, types, bytes, JSON, metadata and revisions', async () => {
    const ids = [randomUUID(), randomUUID(), randomUUID()] as const;
    const appended = await port.append('port-wrote', 'none', [
      {
        id: ids[0],
        type: 'Json',
        data: { text: 'ü', list: [1, null, true] },
        metadata: { by: 'port' },
      },
      { id: ids[1], type: 'Bytes', data: everyByte, metadata: { by: 'port' } },
      { id: ids[2], type: 'Empty', data: Buffer.alloc(0) },
    ]);
    const seen = await seenByVendor('port-wrote');
    expect(seen.map(({ id }) => id)).toEqual(ids);
    expect(seen.map(({ type }) => type)).toEqual(['Json', 'Bytes', 'Empty']);
    expect(seen.map(({ revision }) => revision)).toEqual([0, 1, 2]);
    expect(seen[0]).toMatchObject({
      isJson: true,
      data: { text: 'ü', list: [1, null, true] },
      metadata: { by: 'port' },
    });
    expect(Buffer.from(seen[1]?.data as Uint8Array).equals(everyByte)).toBe(true);
    expect(seen[1]?.isJson).toBe(false);
    expect(Buffer.from(seen[2]?.data as Uint8Array)).toHaveLength(0);
    expect(seen[2]?.position?.commit).toBe(appended.position);
  });

  it('agree on what the vendor’s client appended', async () => {
    const bytes = randomBytes(10_000);
    await vendor.appendToStream('vendor-wrote', [
      jsonEvent({ type: 'Json', data: { n: 1 }, metadata: { by: 'vendor' } }),
      binaryEvent({ type: 'Bytes', data: bytes }),
    ]);
    const seen = [];
    for await (const event of port.read('vendor-wrote')) seen.push(event);
    expect(seen.map(({ type, revision }) => [type, revision])).toEqual([
      ['Json', 0],
      ['Bytes', 1],
    ]);
    expect(seen[0]).toMatchObject({ data: { n: 1 }, metadata: { by: 'vendor' } });
    expect(bytes.equals(seen[1]?.data as Buffer)).toBe(true);
  });

  it('see one another’s conflicts and appends', async () => {
    const event = () => ({ id: randomUUID(), type: 'E', data: {} });
    await port.append('shared', 'none', [event()]);
    await vendor.appendToStream('shared', jsonEvent({ type: 'E', data: {} }), {
      expectedRevision: 0n,
    });
    await expect(port.append('shared', 0, [event()])).rejects.toThrow(WrongRevision);
    await port.append('shared', 1, [event()]);
    await expect(
      vendor.appendToStream('shared', jsonEvent({ type: 'E', data: {} }), { expectedRevision: 1n }),
    ).rejects.toThrow();
  });

  it('follow one another live, in the same order', async () => {
    const stop = new AbortController();
    const viaPort: string[] = [];
    const viaVendor: string[] = [];
    const following = (async () => {
      for await (const item of port.subscribe({ stream: 'live' }, stop.signal)) {
        if (item.kind === 'event') viaPort.push(item.event.id);
        if (viaPort.length === 20) return;
      }
    })();
    const subscription = vendor.subscribeToStream('live', { fromRevision: START });
    const heard = new Promise<void>((resolve) => {
      subscription.on('data', ({ event }) => {
        if (event) viaVendor.push(event.id);
        if (viaVendor.length === 20) resolve();
      });
    });
    for (let round = 0; round < 10; round++) {
      await port.append('live', 'any', [{ id: randomUUID(), type: 'E', data: { round } }]);
      await vendor.appendToStream('live', jsonEvent({ type: 'E', data: { round } }));
    }
    await Promise.all([following, heard]);
    await subscription.unsubscribe();
    expect(viaPort).toEqual(viaVendor);
  });
});
