import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { connectEventStore, eventStoreSettingsFrom, StoreUnavailable } from '@vmux/event-store';
import {
  type EventStoreServer,
  projectRoot,
  releaseAll,
  startEventStore,
  startProcess,
  temporaryDirectory,
} from '@vmux/testing';

afterAll(releaseAll);

const event = (id: string) => ({ id, type: 'Told', data: { told: true } });
const id = '7f3c1f54-1d5c-4c6e-9d55-0d1b1f5a0a01';

describe('the settings of the event store', () => {
  it('come from the environment, and say what is missing', () => {
    expect(() => eventStoreSettingsFrom({})).toThrow(/EVENTSTORE_URL is not set/);
    const env = { EVENTSTORE_URL: 'esdb://h:1', EVENTSTORE_PASSWORD_FILE: '/p' };
    expect(eventStoreSettingsFrom(env)).toEqual({ url: 'esdb://h:1', passwordFile: '/p' });
  });

  it('are refused without showing the password when they make no sense', () => {
    const refused = (url: string) => {
      try {
        connectEventStore({ url });
      } catch (fault) {
        return String(fault);
      }
      throw new Error(`${url} was accepted`);
    };
    for (const url of ['http://admin:geheim@h:1', 'esdb://admin:geheim@h:1?tls=maybe', 'geheim']) {
      expect(refused(url)).toMatch(/cannot be read/);
      expect(refused(url)).not.toMatch(/geheim/);
    }
    expect(refused('esdb://admin:geheim@h:1?tls=false')).toMatch(/never sent without TLS/);
    expect(refused('esdb://admin@h:1')).toMatch(/without a password/);
  });

  it('take the password from a file, for admin or for the user in the URL', async () => {
    const server = await startEventStore();
    const { passwordFile, urlWithoutPassword } = server;
    for (const url of [urlWithoutPassword, urlWithoutPassword.replace('//', '//admin@')]) {
      const store = connectEventStore({ url, passwordFile });
      expect((await store.append('settings', 'none', [event(id)])).revision).toBe(0);
      await store.close();
    }
    const wrongFile = join(temporaryDirectory(), 'password');
    writeFileSync(wrongFile, 'wrong\n');
    const stranger = connectEventStore({ url: urlWithoutPassword, passwordFile: wrongFile });
    const denied = { reason: 'access_denied' };
    await expect(stranger.append('settings', 0, [event(id)])).rejects.toMatchObject(denied);
    await stranger.close();
  });
});

describe('a server that is not what it should be', () => {
  let server: EventStoreServer;
  beforeAll(async () => {
    server = await startEventStore();
  });

  it('is not trusted with another certificate', async () => {
    const other = await startEventStore();
    const url = server.url.replace(/tlsCAFile=.*/, `tlsCAFile=${other.caFile}`);
    const store = connectEventStore({ url, timeoutMs: 300 });
    const fault = await store.append('trust', 'any', [event(id)]).catch((reason) => reason);
    expect(fault).toBeInstanceOf(StoreUnavailable);
    expect(fault.message).toMatch(/certificate/);
    await store.close();
  });

  it('is unavailable when it speaks another protocol', async () => {
    const web = createServer((_, response) => response.end('hello')).listen(0, '127.0.0.1');
    await new Promise((resolve) => web.once('listening', resolve));
    const { port } = web.address() as AddressInfo;
    const url = `esdb://127.0.0.1:${port}?tls=false`;
    const store = connectEventStore({ url, timeoutMs: 300 });
    const appending = store.append('web', 'any', [event(id)]);
    await expect(appending).rejects.toBeInstanceOf(StoreUnavailable);
    await store.close();
    web.close();
    web.closeAllConnections();
  });

  it('is unavailable while it hangs, and the same append succeeds once when it goes on', async () => {
    const store = connectEventStore({ url: server.url, timeoutMs: 500 });
    await store.append('hangs', 'none', [event('7f3c1f54-1d5c-4c6e-9d55-0d1b1f5a0a02')]);
    process.kill(server.pid, 'SIGSTOP');
    try {
      const appending = store.append('hangs', 0, [event(id)]);
      await expect(appending).rejects.toBeInstanceOf(StoreUnavailable);
      const reading = store.read('hangs')[Symbol.asyncIterator]().next();
      await expect(reading).rejects.toBeInstanceOf(StoreUnavailable);
    } finally {
      process.kill(server.pid, 'SIGCONT');
    }
    const patient = connectEventStore({ url: server.url });
    expect((await patient.append('hangs', 0, [event(id)])).revision).toBe(1);
    await Promise.all([store.close(), patient.close()]);
  });

  it('is let go of by close: a process with nothing else to do ends', async () => {
    const library = join(projectRoot(), 'dist/libs/event-store/src/index.js');
    const script = `
      const { connectEventStore } = require(${JSON.stringify(library)});
      const store = connectEventStore({ url: process.env.STORE });
      (async () => {
        await store.append('ends', 'any', [${JSON.stringify(event(id))}]);
        (async () => { for await (const _ of store.subscribe({ stream: 'ends' })); console.log('ended'); })();
        for await (const _ of store.read('ends')) await store.close();
      })().catch(() => console.log('closed'));`;
    const child = await startProcess({
      command: process.execPath,
      args: ['-e', script],
      env: { ...process.env, STORE: server.url },
      ready: () => true,
    });
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect(child.output()).toMatch(/ended/);
  });
});
