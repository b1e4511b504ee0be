import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectEventStore } from '@vmux/event-store';
import {
  type Bus,
  connectBus,
  inboxPrefixOf,
  type Role,
  renderServerConfig,
  userOf,
} from '@vmux/messaging';
import {
  projectRoot,
  releaseAll,
  releaseLater,
  startEventStore,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { FakeRunner } from '../../../test/support/fake-runner';
import { Client, factsOf, historyOf, outputOf } from './client';

afterAll(releaseAll);

const password = 'test-password-1';
const roles: readonly Role[] = ['gateway', 'session-service', { runner: 'fake-1' }];

async function startSecuredNats(): Promise<string> {
  const dir = temporaryDirectory('nats');
  const file = join(dir, 'nats.conf');
  const users = roles.map((role) => ({ role, password }));
  const config = { host: '127.0.0.1', port: -1, jetStreamDirectory: join(dir, 'js'), users };
  writeFileSync(file, renderServerConfig(config), { mode: 0o600 });
  let port: string | undefined;
  const server = await startProcess({
    command: 'nats-server',
    args: ['--config', file],
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` },
    ready: (line) => {
      port ??= /Listening for client connections on .*:(\d+)$/.exec(line)?.[1];
      return line.includes('Server is ready') ? port : undefined;
    },
  });
  return `nats://127.0.0.1:${server.ready}`;
}

async function busOf(url: string, role: Role): Promise<Bus> {
  const user = userOf(role);
  const settings = { url, name: user, user, password, inboxPrefix: inboxPrefixOf(user) };
  const bus = await connectBus(settings, (fault) => {
    throw fault;
  });
  releaseLater(() => bus.close());
  return bus;
}

describe('with the rights of its role and no others', () => {
  it('a session service takes a session from its creation to its end', async () => {
    const [natsUrl, events] = await Promise.all([startSecuredNats(), startEventStore()]);
    const dir = temporaryDirectory('service');
    writeFileSync(join(dir, 'nats-password'), `${password}\n`, { mode: 0o600 });
    const service = await startProcess({
      command: process.execPath,
      args: [join(projectRoot(), 'dist/apps/session-service/src/main.js')],
      env: {
        ...process.env,
        EVENTSTORE_URL: events.urlWithoutPassword,
        EVENTSTORE_PASSWORD_FILE: events.passwordFile,
        NATS_URL: natsUrl,
        NATS_USER: 'session-service',
        NATS_PASSWORD_FILE: join(dir, 'nats-password'),
        VMUX_KEYS_DIR: join(dir, 'keys'),
        VMUX_HEALTH_PORT: '0',
        VMUX_INSTANCE: 'secured',
      },
      ready: (line) => (line.startsWith('{"ready":true') ? true : undefined),
    });
    const store = connectEventStore({ url: events.url });
    releaseLater(() => store.close());
    const runner = new FakeRunner(await busOf(natsUrl, { runner: 'fake-1' }));
    const client = new Client(await busOf(natsUrl, 'gateway'));

    const { sessionId } = await client.create('secured');
    const { execId } = await client.exec(sessionId, 'hello');
    await until(async () => (await factsOf(store, sessionId, 'ExecExited')).length === 1);
    expect((await outputOf(store, sessionId, execId, 'stdout')).toString()).toBe('hello');
    await client.ask('StopSession', sessionId, { graceMs: null, force: false });
    await until(async () => (await historyOf(store, sessionId)).at(-1) === 'SessionStopped');

    await runner.stop();
    expect(await service.stop()).toEqual({ code: 0, signal: null });
    expect(runner.faults).toEqual([]);
    expect(service.output()).not.toMatch(/permission|violation/i);
    expect(service.output()).not.toContain(password);
  });
});
