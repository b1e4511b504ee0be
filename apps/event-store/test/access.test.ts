import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { EventStoreDBClient, jsonEvent } from '@eventstore/db-client';
import { Bench, run, type Server } from './server';

const bench = new Bench();
afterAll(() => bench.clean());

const event = () => jsonEvent({ type: 'happened', data: { a: 1 } });

describe('with TLS and a password, which is the default', () => {
  let server: Server;
  beforeAll(async () => {
    server = await bench.start(undefined, '--http-port', '0');
  });

  const using = async (url: string, use: (client: EventStoreDBClient) => Promise<void>) => {
    const client = EventStoreDBClient.connectionString(url);
    try {
      await use(client);
    } finally {
      await client.dispose();
    }
  };

  it('serves a client that has the CA and the password', async () => {
    await using(server.url(), async (client) => {
      const { nextExpectedRevision } = await client.appendToStream('tls', event());
      expect(nextExpectedRevision).toBe(0n);
      for await (const resolved of client.readStream('tls')) {
        expect(resolved.event?.data).toEqual({ a: 1 });
      }
    });
  });

  it.each([
    ['a wrong password', () => server.url('wrong')],
    ['no password', () => server.url().replace(/admin:[^@]*@/, '')],
  ])('refuses a client with %s, to append, to read and to subscribe', async (_, url) => {
    await using(url(), async (client) => {
      const denied = { type: 'access-denied' };
      await expect(client.appendToStream('tls', event())).rejects.toMatchObject(denied);
      const read = async () => {
        for await (const _event of client.readStream('tls'));
      };
      await expect(read()).rejects.toMatchObject(denied);
      const subscribe = async () => {
        for await (const _event of client.subscribeToAll());
      };
      await expect(subscribe()).rejects.toMatchObject(denied);
      await expect(client.deleteStream('tls')).rejects.toMatchObject(denied);
    });
    await using(server.url(), async (client) => {
      const found = [];
      for await (const { event: one } of client.readStream('tls')) found.push(one?.revision);
      expect(found).toEqual([0n]);
    });
  });

  it('keeps every file for its owner alone', () => {
    const directory = join(server.ready.passwordFile ?? '', '../..');
    const files = readdirSync(directory, { recursive: true, withFileTypes: true });
    expect(files.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['events.db', 'password', 'server.key', 'ca.crt']),
    );
    for (const { parentPath, name } of files) {
      expect([name, statSync(join(parentPath, name)).mode & 0o077]).toEqual([name, 0]);
    }
  });

  it('keeps its certificate and password over a restart', async () => {
    const directory = bench.directory();
    const first = await bench.start(directory);
    const url = first.url();
    await first.stop();
    const second = await bench.start(directory, '--port', String(first.ready.port));
    expect(second.url()).toBe(url);
    await using(url, async (client) => {
      await client.appendToStream('again', event());
    });
  });

  it('tells health and figures over HTTP, and no secret', async () => {
    const get = async (path: string) => {
      const response = await fetch(`http://127.0.0.1:${server.ready.httpPort}${path}`);
      return { status: response.status, text: await response.text() };
    };
    expect(await get('/health/live')).toMatchObject({ status: 200 });
    expect(await get('/health/ready')).toMatchObject({ status: 200 });
    expect((await get('/nowhere')).status).toBe(404);
    const metrics = await get('/metrics');
    expect(metrics.text).toMatch(/^event_store_events_total \d+$/m);
    expect(metrics.text).not.toContain(server.password);
  });
});

describe('the command line', () => {
  it('explains itself', async () => {
    const { code, stdout } = await run('--help');
    expect(code).toBe(0);
    expect(stdout).toContain('--data <directory>');
  });

  it.each([
    [['--insecure', '--host', '0.0.0.0'], 'loopback'],
    [['--port', 'seven'], 'not a port'],
    [['--surprise'], 'surprise'],
  ])('refuses %j and says why', async (args, reason) => {
    const { code, stdout, stderr } = await run('--data', bench.directory(), ...args);
    expect(code).toBe(1);
    expect(stdout).toBe('');
    expect(stderr).toContain(reason);
  });
});
