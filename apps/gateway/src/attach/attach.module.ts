import { Inject, Module, type OnModuleDestroy } from '@nestjs/common';
import type { EventStore } from '@vmux/event-store';
import type { Logger } from 'pino';
import { ExecWaiting } from '../application/exec-waiting';
import { KeyRing } from '../application/key-ring';
import { LogReader } from '../application/log-reader';
import { RateLimit } from '../application/rate-limit';
import { SessionCommands } from '../application/session-commands';
import { SessionReader } from '../application/session-reader';
import { Shares } from '../application/shares';
import { Tickets } from '../application/tickets';
import { DataPlaneModule } from '../data-plane/data-plane.module';
import { SandboxStreams } from '../data-plane/sandbox-streams';
import { FAILED_LOGINS } from '../http/auth.guard';
import { Callers } from '../http/callers';
import { Followers } from '../http/followers';
import type { Metrics } from '../http/metrics';
import { Upgrades } from '../http/upgrades';
import { UpgradesModule } from '../http/upgrades.module';
import { EVENT_STORE, LOGGER, METRICS } from '../tokens';
import { ATTACH_PATH, AttachServer } from './attach-server';
import { Screens } from './screens';
import { ShellController } from './shell.controller';

@Module({
  imports: [DataPlaneModule, UpgradesModule],
  controllers: [ShellController],
  providers: [
    {
      provide: Callers,
      inject: [KeyRing, Tickets, RateLimit, FAILED_LOGINS, METRICS, Shares],
      useFactory: (
        keys: KeyRing,
        tickets: Tickets,
        rate: RateLimit,
        failures: RateLimit,
        metrics: Metrics,
        shares: Shares,
      ) => new Callers(keys, tickets, rate, failures, metrics, shares),
    },
    {
      provide: LogReader,
      inject: [EVENT_STORE, SessionReader],
      useFactory: (store: EventStore, sessions: SessionReader) => new LogReader(store, sessions),
    },
    {
      provide: Screens,
      inject: [EVENT_STORE, LogReader, ExecWaiting],
      useFactory: (store: EventStore, logs: LogReader, execs: ExecWaiting) =>
        new Screens(store, logs, execs),
    },
    {
      provide: AttachServer,
      inject: [
        ...[Callers, SessionCommands, SandboxStreams],
        ...[LogReader, Screens, Followers, LOGGER],
      ],
      useFactory: (
        callers: Callers,
        sessions: SessionCommands,
        streams: SandboxStreams,
        logs: LogReader,
        screens: Screens,
        followers: Followers,
        logger: Logger,
      ) =>
        new AttachServer({
          ...{ callers, sessions, streams, logs, screens, followers, logger },
        }),
    },
  ],
})
export class AttachModule implements OnModuleDestroy {
  constructor(
    @Inject(Upgrades) upgrades: Upgrades,
    @Inject(AttachServer) server: AttachServer,
    @Inject(Screens) private readonly screens: Screens,
  ) {
    upgrades.add(ATTACH_PATH, (upgrade) => server.take(upgrade));
  }

  onModuleDestroy(): void {
    this.screens.close();
  }
}
