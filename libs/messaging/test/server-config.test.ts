import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  commandSubject,
  controlReportSubject,
  EVENT_RELAY_STREAM,
  EVENT_SUBJECTS,
  eventSubject,
  OUTPUT_RELAY_STREAM,
  OUTPUT_SUBJECTS,
  orderSubject,
  outputSubject,
} from '@vmux/events';
import {
  type Bus,
  connectBus,
  inboxPrefixOf,
  type Role,
  renderServerConfig,
  userOf,
} from '@vmux/messaging';
import {
  type RunningProcess,
  releaseAll,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { AckPolicy } from 'nats';

const roles: Role[] = [
  'gateway',
  'session-service',
  'consumer',
  { runner: 'one' },
  { runner: 'two' },
];
const passwordOf = (role: Role) => `password of ${userOf(role)}`;
const text = (value: string) => Buffer.from(value);
const timeoutMs = 500;

describe('the rendered NATS configuration', () => {
  let server: RunningProcess<number>;
  let buses: Bus[];
  let faults: string[];

  beforeAll(async () => {
    const dir = temporaryDirectory('nats-config');
    const file = join(dir, 'nats.conf');
    const users = roles.map((role) => ({ role, password: passwordOf(role) }));
    writeFileSync(
      file,
      renderServerConfig({ host: '127.0.0.1', port: -1, jetStreamDirectory: dir, users }),
      { mode: 0o600 },
    );
    let port: number | undefined;
    server = await startProcess({
      command: 'nats-server',
      args: ['--config', file],
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` },
      ready: (line) => {
        port ??= Number(/client connections on .*:(\d+)$/.exec(line)?.[1]) || undefined;
        return line.includes('Server is ready') ? port : undefined;
      },
    });
  });
  afterAll(releaseAll);
  beforeEach(() => {
    buses = [];
    faults = [];
  });
  afterEach(() => Promise.all(buses.map((bus) => bus.close())));

  const as = async (role: Role, password = passwordOf(role)) => {
    const user = userOf(role);
    const settings = {
      url: `nats://127.0.0.1:${server.ready}`,
      name: user,
      user,
      password,
      inboxPrefix: inboxPrefixOf(user),
    };
    const bus = await connectBus(settings, (fault) => faults.push(String(fault)));
    buses.push(bus);
    return bus;
  };
  /** Whether what one publishes reaches the other. */
  const reaches = async (from: Bus, subject: string, to: Bus) => {
    let heard = false;
    to.serve(subject, {}, async () => {
      heard = true;
      return undefined;
    });
    await to.connection.flush();
    from.publish(subject, text('x'));
    await from.connection.flush();
    await to.connection.flush();
    await new Promise((resolve) => setTimeout(resolve, 50));
    return heard;
  };

  it('lets a gateway ask the session service and get its answer', async () => {
    const service = await as('session-service');
    service.serve('vmux.commands.*', { queue: 'session-service' }, async ({ data }) => data);
    await service.connection.flush();
    const gateway = await as('gateway');
    expect(
      await gateway.request(commandSubject('CreateSession'), text('x'), { timeoutMs }),
    ).toHaveLength(1);
  });

  it('lets a runner report and take its own orders', async () => {
    const [service, runner] = [await as('session-service'), await as({ runner: 'one' })];
    service.serve('vmux.reports.*.>', {}, async ({ data }) => data);
    await service.connection.flush();
    expect(
      await runner.request(controlReportSubject('one'), text('x'), { timeoutMs }),
    ).toHaveLength(1);
    expect(await reaches(service, orderSubject('one'), runner)).toBe(true);
  });

  it.each([
    ['a runner speak for another', { runner: 'one' }, controlReportSubject('two')],
    ['a gateway report', 'gateway', controlReportSubject('one')],
    ['a gateway give orders', 'gateway', orderSubject('one')],
    ['a runner give commands', { runner: 'one' }, commandSubject('DeleteSession')],
    ['a consumer give commands', 'consumer', commandSubject('DeleteSession')],
    ['a consumer forge events', 'consumer', eventSubject('web-0a1b', 'ExecExited')],
  ] as const)('does not let %s', async (_, role, subject) => {
    const bus = await as(role);
    bus.publish(subject, text('x'));
    await until(() =>
      faults.some((fault) => fault.includes(`PERMISSIONS_VIOLATION publish ${subject}`)),
    );
  });

  it('does not let a runner overhear another’s orders', async () => {
    const [service, spy] = [await as('session-service'), await as({ runner: 'two' })];
    expect(await reaches(service, orderSubject('one'), spy)).toBe(false);
  });

  it('lets a consumer read the relayed events and not delete them', async () => {
    const service = await as('session-service');
    const manager = await service.connection.jetstreamManager();
    await manager.streams.add({ name: EVENT_RELAY_STREAM, subjects: [EVENT_SUBJECTS] });
    const subject = eventSubject('web-0a1b', 'ExecExited');
    await service.connection.jetstream().publish(subject, text('x'));
    const consumer = await as('consumer');
    const reading = await consumer.connection.jetstreamManager({ checkAPI: false });
    await reading.consumers.add(EVENT_RELAY_STREAM, {
      durable_name: 'mine',
      ack_policy: 'explicit' as never,
    });
    const pulled = await consumer.connection
      .jetstream({ checkAPI: false } as never)
      .pull(EVENT_RELAY_STREAM, 'mine');
    expect(pulled.subject).toBe(subject);
    await expect(reading.streams.delete(EVENT_RELAY_STREAM)).rejects.toThrow();
  });

  it('does not let a consumer have stored output delivered as an order', async () => {
    const [service, runner] = [await as('session-service'), await as({ runner: 'one' })];
    const manager = await service.connection.jetstreamManager({ checkAPI: false });
    await manager.streams.add({ name: OUTPUT_RELAY_STREAM, subjects: [OUTPUT_SUBJECTS] });
    await service.connection.jetstream().publish(outputSubject('web-0a1b'), text('forged'));
    const heard: string[] = [];
    runner.serve(orderSubject('one'), {}, async ({ data }) => {
      heard.push(Buffer.from(data).toString());
      return undefined;
    });
    await runner.connection.flush();
    const consumer = await as('consumer');
    const making = await consumer.connection.jetstreamManager({ checkAPI: false });
    await making.consumers.add(OUTPUT_RELAY_STREAM, {
      durable_name: 'forger',
      deliver_subject: orderSubject('one'),
      ack_policy: AckPolicy.None,
    });
    await until(() => faults.some((fault) => fault.includes('sent to another subject')));
    service.publish(orderSubject('one'), text('real'));
    await until(() => heard.length > 0);
    expect(heard).toEqual(['real']);
  });

  it('lets nobody in with a wrong password', async () => {
    await expect(as('gateway', 'a guess')).rejects.toThrow(/authorization/i);
  });

  it('reads a password from the environment where it is named so', () => {
    const users = [{ role: 'gateway' as const, password: '$NATS_GATEWAY_PASSWORD' }];
    expect(
      renderServerConfig({ host: '0.0.0.0', port: 4222, jetStreamDirectory: '/data', users }),
    ).toContain('password: $NATS_GATEWAY_PASSWORD,');
  });
});
