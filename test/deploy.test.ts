import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectBus, inboxPrefixOf, renderServerConfig } from '@vmux/messaging';
import { projectRoot, releaseAll, startProcess, temporaryDirectory } from '@vmux/testing';
import { configFrom as gatewayConfig } from '../apps/gateway/src/config';
import { configFrom as sessionServiceConfig } from '../apps/session-service/src/config';

const fileOf = (...path: string[]) => join(projectRoot(), ...path);
const textOf = (...path: string[]) => readFileSync(fileOf(...path), 'utf8');

const users = [
  { role: 'gateway', password: '$NATS_GATEWAY_PASSWORD' },
  { role: 'session-service', password: '$NATS_SESSION_SERVICE_PASSWORD' },
  { role: 'consumer', password: '$NATS_CONSUMER_PASSWORD' },
  { role: { runner: 'local' }, password: '$NATS_RUNNER_LOCAL_PASSWORD' },
] as const;

afterAll(releaseAll);

let dir: string;
beforeAll(() => {
  dir = temporaryDirectory('secrets');
  const made = spawnSync('sh', [fileOf('deploy/make-secrets.sh'), dir], { encoding: 'utf8' });
  expect([made.status, made.stderr]).toEqual([0, '']);
});

/** The variables of one service in docker-compose.yml, with files of this machine for its own. */
function environmentOf(service: string): Record<string, string> {
  const block = textOf('docker-compose.yml').split(/^ {2}(?=[a-z-]+:$)/m);
  const lines = block.find((text) => text.startsWith(`${service}:`))?.split('\n') ?? [];
  const from = lines.findIndex((line) => line.startsWith('    environment:')) + 1;
  const to = lines.findIndex((line, index) => index >= from && !line.startsWith('      '));
  return Object.fromEntries(
    lines.slice(from, to).map((line) => {
      const [, name = '', value = ''] = /^ {6}([A-Z_]+): "?(.*?)"?$/.exec(line) ?? [];
      return [name, value.replace('/run/secrets', dir).replace('/etc/vmux/eventstore-ca.crt', dir)];
    }),
  );
}

describe('The files for a deployment', () => {
  it('have the NATS configuration that the code renders', () => {
    const rendered = { host: '0.0.0.0', port: 4222, jetStreamDirectory: '/data', users };
    expect(textOf('deploy/nats.conf')).toBe(renderServerConfig(rendered));
  });

  it('set every service up with what it wants', () => {
    const gateway = gatewayConfig(environmentOf('gateway'));
    const redisPassword = readFileSync(join(dir, 'redis'), 'utf8').trim();
    expect(gateway).toMatchObject({
      host: '0.0.0.0',
      port: 7070,
      redisUrl: `redis://:${redisPassword}@redis:6379`,
      bus: { url: 'nats://nats:4222', user: 'gateway' },
    });
    expect(sessionServiceConfig(environmentOf('session-service'))).toMatchObject({
      healthPort: 7071,
      relay: { output: false },
      bus: { url: 'nats://nats:4222', user: 'session-service' },
    });
  });

  it('make secrets that only their owner reaches, once', () => {
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    const before = readFileSync(join(dir, 'nats_gateway'), 'utf8');
    expect(before).toMatch(/^[0-9a-f]{48}\n$/);
    expect(spawnSync('sh', [fileOf('deploy/make-secrets.sh'), dir]).status).toBe(0);
    expect(readFileSync(join(dir, 'nats_gateway'), 'utf8')).toBe(before);
  });

  it('make a certificate for the event store and throw its CA’s key away', () => {
    const certificates = join(dir, 'eventstore');
    const node = new X509Certificate(readFileSync(join(certificates, 'node/node.crt')));
    const ca = new X509Certificate(readFileSync(join(certificates, 'ca/ca.crt')));
    expect(node.verify(ca.publicKey)).toBe(true);
    expect(node.checkHost('eventstore')).toBe('eventstore');
    expect(readdirSync(certificates, { recursive: true }).sort()).toEqual([
      'ca',
      'ca/ca.crt',
      'node',
      'node/node.crt',
      'node/node.key',
    ]);
  });

  it('let a role into NATS with the password of its file, whatever it looks like', async () => {
    writeFileSync(join(dir, 'nats_gateway'), '0123456789\n');
    const config = join(dir, 'nats.conf');
    const text = textOf('deploy/nats.conf')
      .replace('host: "0.0.0.0"', 'host: "127.0.0.1"')
      .replace('port: 4222', 'port: -1')
      .replace('"/data"', JSON.stringify(join(dir, 'data')));
    writeFileSync(config, text);
    let port: number | undefined;
    const server = await startProcess({
      command: 'sh',
      args: [fileOf('deploy/nats-entrypoint.sh'), config],
      env: { PATH: `${process.env.PATH}:/usr/sbin`, SECRETS_DIR: dir },
      ready: (line) => {
        port ??= Number(/client connections on .*:(\d+)$/.exec(line)?.[1]) || undefined;
        return line.includes('Server is ready') ? port : undefined;
      },
    });
    const url = `nats://127.0.0.1:${server.ready}`;
    for (const [user, file] of [
      ['gateway', 'nats_gateway'],
      ['runner-local', 'nats_runner_local'],
    ] as const) {
      const password = readFileSync(join(dir, file), 'utf8').trim();
      const inboxPrefix = inboxPrefixOf(user);
      const bus = await connectBus(
        { url, name: user, user, password, inboxPrefix },
        () => undefined,
      );
      expect(bus.connected).toBe(true);
      await bus.close();
    }
    const stranger = { url, name: 'x', user: 'gateway', password: 'guess' };
    await expect(connectBus(stranger, () => undefined)).rejects.toThrow(/authorization/i);
  });
});
