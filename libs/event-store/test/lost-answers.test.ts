import { randomUUID } from 'node:crypto';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import {
  connectEventStore,
  type EventStore,
  type ExpectedRevision,
  type NewEvent,
  WrongRevision,
} from '@vmux/event-store';
import { type EventStoreServer, releaseAll, startEventStore, until } from '@vmux/testing';

/** Stands between the port and the server and can keep the server's answers to itself. */
class LossyProxy {
  private readonly sockets = new Set<Socket>();
  private readonly server: Server;
  private swallowed = 0;
  private swallows = false;

  constructor(targetPort: number) {
    this.server = createServer((client) => {
      const target = dial(targetPort, '127.0.0.1');
      for (const socket of [client, target]) {
        this.sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          this.sockets.delete(socket);
          client.destroy();
          target.destroy();
        });
      }
      client.on('data', (bytes) => target.write(bytes));
      target.on('data', (bytes) => {
        if (this.swallows) this.swallowed += bytes.length;
        else client.write(bytes);
      });
    });
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    const address = this.server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    return address.port;
  }

  /** From now on nothing that the server says arrives. */
  swallow(): void {
    this.swallows = true;
    this.swallowed = 0;
  }

  get hasSwallowed(): boolean {
    return this.swallowed > 0;
  }

  /** Breaks the connections; new ones work. */
  cut(): void {
    this.swallows = false;
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}

describe('an append whose answer got lost', () => {
  let server: EventStoreServer;
  let proxy: LossyProxy;
  let direct: EventStore;
  let proxied: EventStore;

  beforeAll(async () => {
    server = await startEventStore();
    proxy = new LossyProxy(server.port);
    const port = await proxy.listen();
    direct = connectEventStore({ url: server.url });
    proxied = connectEventStore({ url: server.url.replace(`:${server.port}`, `:${port}`) });
  });
  afterAll(async () => {
    await proxied.close();
    await direct.close();
    proxy.close();
    await releaseAll();
  });

  const events = (count: number): NewEvent[] =>
    Array.from({ length: count }, (_, n) => ({ id: randomUUID(), type: 'Told', data: { n } }));
  const idsIn = async (stream: string) => {
    const ids: string[] = [];
    for await (const { id } of direct.read(stream)) ids.push(id);
    return ids;
  };

  /** Starts the append, lets the server store it, and loses the answer. */
  async function appendAndLoseTheAnswer(
    stream: string,
    expected: ExpectedRevision,
    told: NewEvent[],
    meanwhile: () => Promise<unknown> = async () => undefined,
  ) {
    await proxied.append(`${stream}-warm`, 'any', events(1));
    proxy.swallow();
    const appending = proxied.append(stream, expected, told);
    appending.catch(() => undefined);
    await until(async () => (await idsIn(stream)).includes(told[0]?.id ?? ''));
    await until(() => proxy.hasSwallowed);
    await meanwhile();
    proxy.cut();
    return appending;
  }

  it.each<[string, ExpectedRevision]>([
    ['at no stream', 'none'],
    ['at an exact revision', 1],
    ['at any revision', 'any'],
  ])('%s is a success, stored once', async (name, expected) => {
    const stream = `lost-${name}`;
    const before = expected === 'none' ? [] : events(2);
    if (before.length > 0) await direct.append(stream, 'none', before);
    const told = events(2);
    const { revision } = await appendAndLoseTheAnswer(stream, expected, told);
    expect(revision).toBe(before.length + 1);
    expect(await idsIn(stream)).toEqual([...before, ...told].map(({ id }) => id));
  });

  it.each<[string, ExpectedRevision]>([
    ['at no stream', 'none'],
    ['at any revision', 'any'],
  ])('%s is a success after a restart too, and with others behind it', async (name, expected) => {
    const stream = `restarted-${name}`;
    const [told, others] = [events(2), events(3)];
    const { revision } = await appendAndLoseTheAnswer(stream, expected, told, async () => {
      await direct.append(stream, 1, others);
      await server.restart();
    });
    expect(revision).toBe(1);
    expect(await idsIn(stream)).toEqual([...told, ...others].map(({ id }) => id));
  });

  it('stays a conflict when it was one', async () => {
    const stream = 'conflict';
    await direct.append(stream, 'none', events(3));
    await proxied.append('conflict-warm', 'any', events(1));
    proxy.swallow();
    const appending = proxied.append(stream, 0, events(1)).catch((fault) => fault);
    await until(() => proxy.hasSwallowed);
    proxy.cut();
    const fault = await appending;
    expect(fault).toBeInstanceOf(WrongRevision);
    expect(fault).toMatchObject({ expected: 0, actual: 2 });
    expect(await idsIn(stream)).toHaveLength(3);
  });
});
