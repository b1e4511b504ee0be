import { type DynamicModule, Module, type Provider } from '@nestjs/common';
import type { EventStore } from '@vmux/event-store';
import { type Order, orderSubject } from '@vmux/events';
import type { KeyStore } from '@vmux/key-store';
import { type Bus, encodeJson } from '@vmux/messaging';
import { Answering } from './adapters/answering';
import { CommandsController } from './adapters/commands.controller';
import { Metrics } from './adapters/metrics';
import { PresenceController } from './adapters/presence.controller';
import { ReportsController } from './adapters/reports.controller';
import { Activity } from './application/activity';
import { Changes } from './application/changes';
import { CommandHandler } from './application/commands';
import { Deciding } from './application/deciding';
import { Errands } from './application/errands';
import { Faults } from './application/faults';
import { GuardedStore } from './application/guarded-store';
import type { Log } from './application/log';
import { LogWriting } from './application/log-writing';
import { OpenSessions } from './application/open-sessions';
import { Orders } from './application/orders';
import { INGEST_LIMITS, OutputIngest } from './application/output-ingest';
import { Peers } from './application/peers';
import { Placing } from './application/placing';
import { Readiness } from './application/readiness';
import { ReportHandler } from './application/reports';
import { Room } from './application/room';
import { Runners } from './application/runners';
import { Service } from './application/service';
import { SessionHistory } from './application/session-history';
import { SessionLog } from './application/session-log';
import { Snapshots } from './application/snapshots';
import type { Config } from './config';

const CACHE_BYTES = 64 * 1024 * 1024;

/** What the process has before anything can be wired. */
export interface Outside {
  readonly config: Config;
  readonly bus: Bus;
  readonly store: EventStore;
  readonly keys: KeyStore;
  readonly readiness: Readiness;
  readonly metrics: Metrics;
  readonly log: Log;
}

@Module({})
export class SessionServiceModule {}

export const sessionServiceModule = (outside: Outside): DynamicModule => ({
  module: SessionServiceModule,
  controllers: [CommandsController, ReportsController, PresenceController],
  providers: [Answering, ...wired(outside)],
});

/** Written out in order of dependence: whoever comes later knows those before. */
function wired({ config, bus, store, keys, readiness, metrics, log }: Outside): Provider[] {
  const now = () => Date.now();
  const faults = new Faults(readiness, log);
  const runners = new Runners(now);
  const peers = new Peers(config.instance, now);
  const room = new Room(config.storeDir, config.reserveBytes, log);

  const guard = new GuardedStore(store);
  const history = new SessionHistory(guard, new Snapshots(guard), log, CACHE_BYTES);
  const logs = new SessionLog(guard, CACHE_BYTES / 4);
  const writing = new LogWriting(history, logs, log);
  const open = new OpenSessions(guard, log, (sessionId, revision, over, event) => {
    if (event) history.observe(sessionId, event);
    orders.changed(sessionId, revision, over);
  });
  const activity = new Activity(now);
  const deciding = new Deciding(history, (sessionId, { session }) => {
    activity.note(sessionId);
    orders.changed(sessionId, session.revision, false);
  });
  const placing = new Placing(runners, now);
  const changes = new Changes(deciding, logs, writing, placing, now);
  const commands = new CommandHandler(changes, history, keys, () => room.isEnough);
  const errands = new Errands(changes, commands, keys, runners, placing, guard, publish, log);
  const orders = new Orders(history, open, peers, errands, faults, log, now);
  const ingest = new OutputIngest(
    writing,
    () => room.isEnough,
    (sessionId, epoch) => errands.giveUp(sessionId, epoch),
    INGEST_LIMITS,
    (sessionId) => activity.besides(sessionId),
  );
  const service = new Service({
    ...{ bus, store, guard, open, orders, deciding, writing, peers, runners, room, readiness, log },
  });

  function publish(order: Order): void {
    metrics.ordersSent.inc({ type: order.type });
    bus.publish(orderSubject(order.runnerId), encodeJson(order));
  }

  metrics.gauge('open_sessions', 'Sessions that something may be owed to.', () => open.size);
  metrics.gauge('output_bytes_in_flight', 'Output not yet answered.', () => ingest.bytesInFlight);

  const provided: readonly (readonly [Provider & object, object])[] = [
    [Faults, faults],
    [Metrics, metrics],
    [Runners, runners],
    [Peers, peers],
    [Orders, orders],
    [OutputIngest, ingest],
    [CommandHandler, commands],
    [ReportHandler, new ReportHandler(changes)],
    [Service, service],
  ];
  return provided.map(([token, useValue]) => ({ provide: token, useValue }) as Provider);
}
