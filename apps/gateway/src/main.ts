import '@vmux/early-jit';
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { NestFactory } from '@nestjs/core';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import { openArtifacts } from '@vmux/artifacts';
import { connectEventStore, StoreUnavailable } from '@vmux/event-store';
import { KeyDirectory } from '@vmux/key-store';
import { connectBus } from '@vmux/messaging';
import { API_KEY_STREAM } from './application/api-keys';
import { KeyRing } from './application/key-ring';
import { RunnerBoard } from './application/runner-board';
import { GuardedStore } from './application/store-guard';
import { configFrom } from './config';
import { GatewayModule } from './gateway.module';
import { describeApi } from './http/docs';
import { Followers } from './http/followers';
import { installHooks } from './http/hooks';
import { Metrics } from './http/metrics';
import { configureServer, httpAdapter, PreviewsFirst } from './http/server';
import { Upgrades } from './http/upgrades';
import { ensureLocalKey } from './local-key';
import { loggerFor, nestLogger } from './logger';
import { PreviewServer } from './previews/preview-server';
import { startSessionIndex } from './projections/start-index';

async function main(): Promise<void> {
  const config = configFrom(process.env);
  const logger = loggerFor(config.logLevel);
  const metrics = new Metrics();
  const running = new AbortController();

  const store = new GuardedStore(connectEventStore(config.store), { probe: API_KEY_STREAM });
  const artifacts = await openArtifacts(config.artifactsDir);
  const keys = await KeyDirectory.at(config.keysDir);
  const bus = await connectBus(config.bus, (fault, subject) =>
    logger.warn({ fault, subject }, 'a message could not be handled'),
  );
  const runners = new RunnerBoard();
  runners.listen(bus, (fault) => logger.warn({ fault }, 'a heartbeat cannot be read'));
  const { redisUrl, dataDir } = config;
  let serves: () => void = () => undefined;
  // Lists may come later than everything else, and reading long histories would hold that up.
  const begin = new Promise<void>((resolve) => {
    serves = resolve;
  });
  const index = startSessionIndex({ store, redisUrl, dataDir, log: logger, begin });

  const keyRing = new KeyRing(store, (fault) => logger.warn({ fault }, 'the keys fall behind'));
  await untilStoreAnswers(() => keyRing.start(running.signal), logger);
  if (config.isLoopback && dataDir)
    await untilStoreAnswers(() => ensureLocalKey(keyRing, dataDir), logger);

  metrics.gauge('vmux_gateway_messaging_connected', 'Whether NATS is connected.', () =>
    Number(bus.connected),
  );
  metrics.gauge(
    'vmux_gateway_runners_alive',
    'Runners that were heard lately.',
    () => runners.list().filter(({ alive }) => alive).length,
  );

  const outside = { config, logger, metrics, store, bus, artifacts, keys, keyRing, index, runners };
  const previews = new PreviewsFirst();
  const app = await NestFactory.create<NestFastifyApplication>(
    GatewayModule.with(outside),
    httpAdapter(config, previews),
    { bodyParser: false, logger: nestLogger(logger), abortOnError: false },
  );
  const fastify = app.getHttpAdapter().getInstance();
  installHooks(fastify, config, logger, metrics);
  previews.use(app.get(PreviewServer));
  configureServer(fastify, config, previews, app.get(Upgrades));
  describeApi(app);
  await app.listen(config.port, config.host);
  serves();

  const stop = async () => {
    running.abort();
    app.get(Followers).closeAll();
    await app.close();
    await index.stop();
    await bus.close();
    await store.close();
  };
  const onSignal = (signal: string) => {
    logger.info({ signal }, 'stopping');
    stop().then(
      () => process.exit(0),
      (fault: unknown) => {
        logger.error({ fault }, 'stopping failed');
        process.exit(1);
      },
    );
  };
  process.once('SIGTERM', onSignal);
  process.once('SIGINT', onSignal);
  const address = fastify.server.address();
  const port = typeof address === 'object' && address ? address.port : config.port;
  process.stdout.write(`${JSON.stringify({ ready: true, port })}\n`);
}

/** A gateway that is started before its store waits for it. */
async function untilStoreAnswers(
  work: () => Promise<void>,
  logger: ReturnType<typeof loggerFor>,
): Promise<void> {
  for (let told = false; ; told = true) {
    try {
      return await work();
    } catch (fault) {
      if (!(fault instanceof StoreUnavailable)) throw fault;
      if (!told) logger.warn({ fault }, 'waiting for the event store');
      await sleep(500);
    }
  }
}

main().catch((fault: unknown) => {
  process.stderr.write(`${fault instanceof Error ? fault.message : String(fault)}\n`);
  process.exit(1);
});
