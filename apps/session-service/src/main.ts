import '@vmux/early-jit';
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { connectEventStore } from '@vmux/event-store';
import { KeyDirectory } from '@vmux/key-store';
import { connectBus } from '@vmux/messaging';
import { BusServer } from './adapters/bus-server';
import { HealthServer } from './adapters/health-server';
import { loggerFor, nestLogger } from './adapters/logger';
import { Metrics } from './adapters/metrics';
import { Readiness } from './application/readiness';
import { Service } from './application/service';
import { configFrom } from './config';
import { startRelay } from './relay/start-relay';
import { sessionServiceModule } from './session-service.module';

async function main(): Promise<void> {
  const config = configFrom(process.env);
  const log = loggerFor(config.instance, config.logLevel);
  const readiness = new Readiness();
  const metrics = new Metrics();
  readiness.set('start', 'starting');
  const health = new HealthServer(readiness, metrics.registry);
  const healthPort = await health.listen(config.healthPort);

  const keys = await KeyDirectory.at(config.keysDir);
  const store = connectEventStore(config.store);
  const bus = await connectBus(config.bus, (fault, subject) =>
    log.error({ fault, subject }, 'a message could not be handled'),
  );

  const server = new BusServer(bus, log);
  const outside = { config, bus, store, keys, readiness, metrics, log };
  const app = await NestFactory.createMicroservice(sessionServiceModule(outside), {
    strategy: server,
    logger: nestLogger(log),
  });
  const service = app.get(Service);
  service.start();
  await app.listen();
  await bus.connection.flush();
  const relay = config.relay
    ? startRelay({ store, connection: bus.connection, settings: config.relay, log })
    : null;
  if (relay) metrics.relays(() => relay.status);
  readiness.set('start', null);

  const stop = async () => {
    readiness.set('start', 'stopping');
    await server.close();
    await service.stop();
    await relay?.stop();
    await app.close();
    await bus.close();
    await store.close();
    await health.close();
  };
  const onSignal = (signal: string) => {
    log.info({ signal }, 'stopping');
    stop().then(
      () => process.exit(0),
      (fault: unknown) => {
        log.error({ fault }, 'stopping failed');
        process.exit(1);
      },
    );
  };
  process.once('SIGTERM', onSignal);
  process.once('SIGINT', onSignal);
  process.stdout.write(`${JSON.stringify({ ready: true, healthPort })}\n`);
}

main().catch((fault: unknown) => {
  process.stderr.write(`${fault instanceof Error ? fault.message : String(fault)}\n`);
  process.exit(1);
});
