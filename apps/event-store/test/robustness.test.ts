import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type ClientHttp2Session, connect } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { binaryEvent, EventStoreDBClient, jsonEvent, START } from '@eventstore/db-client';
import { StreamIdentifier, UUID } from '@eventstore/db-client/generated/shared_pb';
import { BatchAppendReq, ReadReq } from '@eventstore/db-client/generated/streams_pb';
import { Bench, type Server } from './server';

// Bounds a test that waits for something that does not come, on a busy machine too.
jest.setTimeout(120_000);

const bench = new Bench();
let server: Server;
let client: EventStoreDBClient;
let session: ClientHttp2Session;

beforeAll(async () => {
  server = await bench.start(undefined, '--insecure', '--http-port', '0');
  client = EventStoreDBClient.connectionString(server.plainUrl);
  session = connect(`http://127.0.0.1:${server.ready.port}`, { maxSessionMemory: 100 });
});
afterAll(async () => {
  session.destroy();
  await client.dispose();
  await bench.clean();
});

const STREAMS = '/event_store.client.streams.Streams';

const framed = (message: Uint8Array, length = message.length, flag = 0): Buffer => {
  const header = Buffer.alloc(5);
  header[0] = flag;
  header.writeUInt32BE(length, 1);
  return Buffer.concat([header, message]);
};

/** Sends bytes as a call's body and returns the status that the call ends with. */
async function statusOf(path: string, body: Buffer, headers = {}): Promise<number> {
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  });
  let status: unknown;
  stream.on('response', (received) => {
    status = received['grpc-status'];
  });
  stream.on('trailers', (received) => {
    status = received['grpc-status'];
  });
  stream.resume();
  stream.end(body);
  await once(stream, 'close');
  return Number(status);
}

const stillServes = async () => {
  const { nextExpectedRevision } = await client.appendToStream(
    `alive-${Math.random()}`,
    jsonEvent({ type: 'alive', data: {} }),
  );
  expect(nextExpectedRevision).toBe(0n);
};

describe('bad input', () => {
  const noise = Buffer.from('ff'.repeat(64), 'hex');

  it.each([
    ['a message that is no protobuf', `${STREAMS}/BatchAppend`, framed(noise), 3],
    ['such a message to Read', `${STREAMS}/Read`, framed(noise), 3],
    ['such a message to Append', `${STREAMS}/Append`, framed(noise), 3],
    ['such a message to Delete', `${STREAMS}/Delete`, framed(noise), 3],
    ['an empty request to Read', `${STREAMS}/Read`, framed(Buffer.alloc(0)), 3],
    ['no request at all', `${STREAMS}/Read`, Buffer.alloc(0), 3],
    ['a message that is cut short', `${STREAMS}/Read`, framed(noise, 1000), 13],
    [
      'a message that claims four gigabytes',
      `${STREAMS}/BatchAppend`,
      framed(noise, 0xffffffff),
      8,
    ],
    ['a compressed message', `${STREAMS}/Read`, framed(noise, noise.length, 1), 12],
    ['an unknown method', `${STREAMS}/Rewrite`, framed(noise), 12],
    ['an unknown service', '/event_store.client.users.Users/Create', framed(noise), 12],
  ])('answers %s with a status and goes on', async (_, path, body, status) => {
    expect(await statusOf(path, body)).toBe(status);
    await stillServes();
  });

  it('answers what is not gRPC with a status and goes on', async () => {
    expect(await statusOf('/', Buffer.alloc(0), { 'content-type': 'text/html' })).toBe(12);
    await stillServes();
  });

  it.each(['99999999H', '0n', '-1S', 'x'.repeat(100)])(
    'survives a time limit of %s',
    async (timeout) => {
      const body = framed(new ReadReq().serializeBinary());
      expect(await statusOf(`${STREAMS}/Read`, body, { 'grpc-timeout': timeout })).toBe(3);
      await stillServes();
    },
  );

  it('closes a connection that does not speak HTTP/2 and goes on', async () => {
    const socket = connectTcp(server.ready.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.on('error', () => undefined);
    socket.resume();
    socket.end(Buffer.alloc(100_000, 'GET / HTTP/1.1\r\n\r\n'));
    await once(socket, 'close');
    await stillServes();
  });

  it('goes on after clients that vanish in the middle of a call', async () => {
    for (let count = 0; count < 20; count++) {
      const vanishing = connect(`http://127.0.0.1:${server.ready.port}`);
      vanishing.on('error', () => undefined);
      const stream = vanishing.request({
        ':method': 'POST',
        ':path': `${STREAMS}/BatchAppend`,
        'content-type': 'application/grpc',
      });
      stream.on('error', () => undefined);
      stream.write(framed(Buffer.alloc(50_000), 100_000));
      await once(stream, 'response');
      vanishing.destroy();
    }
    await stillServes();
    while ((await server.metric('event_store_connections')) > 2) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  });
});

describe('a reader that does not read', () => {
  it('costs the server bounded memory, and gets everything once it reads again', async () => {
    const stream = 'slow';
    const size = 50_000;
    const count = 1000;
    const subscribe = (): ReadReq => {
      const identifier = new StreamIdentifier();
      identifier.setStreamName(Buffer.from(stream));
      const streamOptions = new ReadReq.Options.StreamOptions();
      streamOptions.setStreamIdentifier(identifier);
      const options = new ReadReq.Options();
      options.setStream(streamOptions);
      options.setSubscription(new ReadReq.Options.SubscriptionOptions());
      const request = new ReadReq();
      request.setOptions(options);
      return request;
    };
    const readers = Array.from({ length: 20 }, () => {
      const reader = session.request({
        ':method': 'POST',
        ':path': `${STREAMS}/Read`,
        'content-type': 'application/grpc',
      });
      reader.pause();
      reader.end(framed(subscribe().serializeBinary()));
      return reader;
    });
    while ((await server.metric('event_store_subscriptions')) < readers.length) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const before = await server.metric('process_resident_memory_bytes');
    for (let sent = 0; sent < count; sent += 10) {
      await client.appendToStream(
        stream,
        Array.from({ length: 10 }, () => binaryEvent({ type: 'b', data: Buffer.alloc(size) })),
      );
    }
    // 20 readers × 50 MB were sent to; what waits here is a batch for each.
    expect(await server.metric('event_store_send_buffer_bytes')).toBeLessThan(20 * 1024 * 1024);
    const grown = (await server.metric('process_resident_memory_bytes')) - before;
    expect(grown).toBeLessThan(300 * 1024 * 1024);

    let events = 0;
    let received = 0;
    const [reader] = readers;
    reader?.on('data', (chunk: Buffer) => {
      received += chunk.length;
    });
    reader?.resume();
    while (received < size * count) await new Promise((resolve) => setTimeout(resolve, 10));
    for await (const { event } of client.readStream(stream)) events += event ? 1 : 0;
    expect(events).toBe(count);
    for (const one of readers) one.close();
  });
});

describe('a writer', () => {
  it('that never takes its answers is held back', async () => {
    const part = (): Buffer => {
      const request = new BatchAppendReq()
        .setCorrelationId(new UUID().setString(randomUUID()))
        .setIsFinal(true)
        .setOptions(
          new BatchAppendReq.Options()
            .setStreamIdentifier(
              new StreamIdentifier().setStreamName(Buffer.from('n'.repeat(1000))),
            )
            .setStreamPosition('7'),
        );
      return framed(request.serializeBinary());
    };
    const deaf = connect(`http://127.0.0.1:${server.ready.port}`, {
      settings: { initialWindowSize: 1 },
      maxSessionMemory: 100,
    });
    const call = deaf.request({
      ':method': 'POST',
      ':path': `${STREAMS}/BatchAppend`,
      'content-type': 'application/grpc',
    });
    call.on('error', () => undefined);
    call.pause();
    // The answers to all of these would be some 20 MB.
    for (let sent = 0; sent < 20_000; sent++) call.write(part());
    const untaken = () => server.metric('event_store_send_buffer_bytes');
    while ((await untaken()) < 256 * 1024) await stillServes();
    for (let turn = 0; turn < 20; turn++) await stillServes();
    expect(await untaken()).toBeLessThan(4 * 1024 * 1024);
    deaf.destroy();
    await stillServes();
  });

  it('that begins appends without end is refused', async () => {
    const data = Buffer.alloc(500_000);
    const parts = Array.from({ length: 40 }, () => {
      const event = new BatchAppendReq.ProposedMessage()
        .setId(new UUID().setString(randomUUID()))
        .setData(data);
      event.getMetadataMap().set('type', 't');
      const request = new BatchAppendReq()
        .setCorrelationId(new UUID().setString(randomUUID()))
        .setOptions(
          new BatchAppendReq.Options()
            .setStreamIdentifier(new StreamIdentifier().setStreamName(Buffer.from('begun')))
            .setStreamPosition('0'),
        );
      request.addProposedMessages(event);
      return framed(request.serializeBinary());
    });
    expect(await statusOf(`${STREAMS}/BatchAppend`, Buffer.concat(parts))).toBe(8);
    await stillServes();
  });
});

describe('shutting down', () => {
  it('ends open calls with CANCELLED and exits with 0', async () => {
    const stopping = await bench.start(undefined, '--insecure');
    const writer = EventStoreDBClient.connectionString(stopping.plainUrl);
    const subscription = writer.subscribeToAll({ fromPosition: START });
    const ended = new Promise((resolve) => subscription.on('error', resolve));
    subscription.on('data', () => undefined);
    await new Promise<void>((resolve) => subscription.on('caughtUp', () => resolve()));
    await writer.appendToStream('last', jsonEvent({ type: 'last', data: {} }));
    const { code, stderr } = await stopping.stop();
    expect(await ended).toMatchObject({ type: 'cancelled', code: 1 });
    expect(code).toBe(0);
    expect(stderr).not.toContain('fatal');
    await writer.dispose();
  });

  it('is as orderly when nobody reads the log any more', async () => {
    const stopping = await bench.start(undefined, '--insecure');
    stopping.closeOutputs();
    expect((await stopping.stop()).code).toBe(0);
  });

  it('is not held up by clients that stay connected', async () => {
    const stopping = await bench.start(undefined, '--insecure');
    const idle = connect(`http://127.0.0.1:${stopping.ready.port}`);
    idle.on('error', () => undefined);
    const call = idle.request({
      ':method': 'POST',
      ':path': `${STREAMS}/BatchAppend`,
      'content-type': 'application/grpc',
    });
    call.on('error', () => undefined);
    await once(call, 'response');
    expect((await stopping.stop()).code).toBe(0);
    idle.destroy();
  });
});
