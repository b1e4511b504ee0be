import '@vmux/early-jit';
import { type Credentials, loadCredentials } from './credentials';
import { HealthServer } from './health';
import { log } from './log';
import { methodsOf } from './methods';
import { Metrics } from './metrics';
import { HELP, type Options, parseOptions } from './options';
import { type EventStore, openEventStore } from './storage/event-store';
import { Subscriptions } from './streams/subscriptions';
import { GrpcServer } from './transport/server';

async function main(): Promise<void> {
  // Everything made here is for its owner alone, the files that SQLite makes included.
  process.umask(0o077);
  const options = parseOptions(process.argv.slice(2));
  if (!options) {
    process.stdout.write(HELP);
    return;
  }
  const subscriptions = new Subscriptions();
  const store: EventStore = openEventStore({
    directory: options.directory,
    walLimitBytes: options.walLimitBytes,
    events: {
      published: (events) => subscriptions.publish(events),
      committed: (group) => metrics.committed(group),
      scavenged: (count) => metrics.removed(count),
      refused: (error) => {
        metrics.failedGroups.inc();
        log('error', 'a group of appends could not be stored and was refused', error);
      },
      housekeepingFailed: (error) => log('warn', 'housekeeping failed, it is tried again', error),
      fatal: (error) => end('events could not be made durable; restart to recover what was', error),
    },
  });
  const credentials = options.insecure ? undefined : loadCredentials(options.tlsDirectory);
  const server = new GrpcServer({
    methods: methodsOf(store, subscriptions),
    accepts: credentials?.accepts,
    tls: credentials,
    failed: (error) => log('error', 'a call failed', error),
  });
  const metrics = new Metrics({
    openCalls: () => server.openCalls,
    connections: () => server.connections,
    subscriptions: () => subscriptions.size,
    bufferedBytes: () => server.bufferedBytes,
    queuedBytes: () => store.committer.queuedBytes,
    walBytes: () => store.walBytes(),
  });
  const health = new HealthServer(metrics);
  const httpPort =
    options.httpPort === undefined
      ? undefined
      : await health.listen(options.host, options.httpPort);
  const port = await server.listen(options.host, options.port);

  const shutDown = async (signal: string): Promise<void> => {
    log('info', `${signal}: shutting down`);
    health.ready(false);
    await store.committer.drained();
    await server.close();
    await store.close();
    health.close();
  };
  let isShuttingDown = false;
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, () => {
      if (isShuttingDown) return;
      isShuttingDown = true;
      shutDown(signal).catch((error) => end('shutting down failed', error));
    });
  }
  health.ready(true);
  process.stdout.write(`${JSON.stringify(readyLine(options, port, httpPort, credentials))}\n`);
}

const readyLine = (
  { host }: Options,
  port: number,
  httpPort: number | undefined,
  credentials: Credentials | undefined,
) => ({
  ready: true,
  pid: process.pid,
  host,
  port,
  httpPort,
  user: credentials && 'admin',
  caFile: credentials?.caFile,
  passwordFile: credentials?.passwordFile,
});

function end(message: string, error: unknown): never {
  log('fatal', message, error);
  process.exit(1);
}

main().catch((error) => end('not started', error));
