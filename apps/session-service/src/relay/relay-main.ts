import { hostname } from 'node:os';
import { connectEventStore, eventStoreSettingsFrom } from '@vmux/event-store';
import { busSettingsFrom, connectBus } from '@vmux/messaging';
import pino from 'pino';
import { relaySettingsFrom, startRelay } from './start-relay';

/** The relay as a process of its own, for those who want it apart from the session services. */
async function main(): Promise<void> {
  const log = pino(
    {
      level: process.env.VMUX_LOG_LEVEL || 'info',
      serializers: { fault: pino.stdSerializers.err },
    },
    pino.destination({ dest: 2, sync: true }),
  );
  const settings = relaySettingsFrom(process.env);
  const store = connectEventStore(eventStoreSettingsFrom(process.env));
  const name = `relay ${hostname()}-${process.pid}`;
  const bus = await connectBus(busSettingsFrom(process.env, name), (fault, subject) =>
    log.warn({ fault, subject }, 'NATS'),
  );
  const relay = startRelay({ store, connection: bus.connection, settings, log });
  let ending = false;
  const end = async () => {
    if (ending) return;
    ending = true;
    await relay.stop();
    await bus.close();
    await store.close();
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      end().catch((fault) => {
        log.error({ fault }, 'the relay did not end in order');
        process.exitCode = 1;
      });
    });
  }
  process.stdout.write(`${JSON.stringify({ ready: true, pid: process.pid })}\n`);
}

main().catch((fault: unknown) => {
  process.stderr.write(`${fault instanceof Error ? fault.message : String(fault)}\n`);
  process.exit(1);
});
