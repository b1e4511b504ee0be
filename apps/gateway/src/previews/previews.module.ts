import { Inject, Module, type OnModuleDestroy } from '@nestjs/common';
import type { EventStore } from '@vmux/event-store';
import type { KeyStore } from '@vmux/key-store';
import type { Logger } from 'pino';
import { KeyRing } from '../application/key-ring';
import { LogReader } from '../application/log-reader';
import { RateLimit } from '../application/rate-limit';
import { RunnerBoard } from '../application/runner-board';
import { SessionCommands } from '../application/session-commands';
import { SessionReader } from '../application/session-reader';
import { Shares } from '../application/shares';
import { Tickets } from '../application/tickets';
import type { Config } from '../config';
import { DataPlaneModule } from '../data-plane/data-plane.module';
import { SandboxStreams } from '../data-plane/sandbox-streams';
import { FAILED_LOGINS } from '../http/auth.guard';
import { Callers } from '../http/callers';
import { Followers } from '../http/followers';
import type { Metrics } from '../http/metrics';
import { Upgrades } from '../http/upgrades';
import { UpgradesModule } from '../http/upgrades.module';
import { CONFIG, EVENT_STORE, KEY_STORE, LOGGER, METRICS } from '../tokens';
import { OpenPreviews } from './open-previews';
import { CONNECT_PATH, PortConnections } from './port-connections';
import { PortsController } from './ports.controller';
import { PreviewAccess } from './preview-access';
import { PreviewNames } from './preview-names';
import { PreviewProxy } from './preview-proxy';
import { PreviewServer } from './preview-server';
import { PreviewTokens } from './preview-tokens';
import { Strangers } from './strangers';
import { WaitingEvents } from './waiting-events';

@Module({
  imports: [DataPlaneModule, UpgradesModule],
  controllers: [PortsController],
  providers: [
    {
      provide: PreviewNames,
      inject: [CONFIG],
      useFactory: ({ previewUrl }: Config) => new PreviewNames(previewUrl),
    },
    {
      provide: PreviewTokens,
      inject: [KEY_STORE],
      useFactory: (keys: KeyStore) => new PreviewTokens(keys),
    },
    {
      provide: PreviewAccess,
      inject: [PreviewTokens, Shares, PreviewNames],
      useFactory: (tokens: PreviewTokens, shares: Shares, { scheme }: PreviewNames) =>
        new PreviewAccess(tokens, shares, scheme),
    },
    {
      provide: OpenPreviews,
      inject: [SessionReader, PreviewAccess, LOGGER],
      useFactory: (reader: SessionReader, access: PreviewAccess, logger: Logger) =>
        new OpenPreviews(reader, access, (err) =>
          logger.warn({ err }, 'previews are not looked at'),
        ),
    },
    {
      provide: PreviewServer,
      inject: [
        ...[PreviewNames, PreviewAccess, OpenPreviews, SessionReader],
        ...[SandboxStreams, EVENT_STORE, METRICS, LOGGER, RunnerBoard],
      ],
      useFactory: (
        names: PreviewNames,
        access: PreviewAccess,
        open: OpenPreviews,
        reader: SessionReader,
        streams: SandboxStreams,
        store: EventStore,
        metrics: Metrics,
        logger: Logger,
        runners: RunnerBoard,
      ) => {
        const events = new WaitingEvents(store, new LogReader(store, reader), reader, runners);
        const proxy = new PreviewProxy();
        const seen = { names, access, open, reader, strangers: new Strangers() };
        const parts = { ...seen, streams, metrics, logger, events, proxy };
        return new PreviewServer(parts);
      },
    },
    {
      provide: PortConnections,
      inject: [
        ...[KeyRing, Tickets, RateLimit, FAILED_LOGINS, METRICS, Shares],
        ...[SessionCommands, SandboxStreams, Followers],
      ],
      useFactory: (
        keys: KeyRing,
        tickets: Tickets,
        rate: RateLimit,
        failures: RateLimit,
        metrics: Metrics,
        shares: Shares,
        sessions: SessionCommands,
        streams: SandboxStreams,
        followers: Followers,
      ) => {
        const callers = new Callers(keys, tickets, rate, failures, metrics, shares);
        return new PortConnections(callers, sessions, streams, followers);
      },
    },
  ],
})
export class PreviewsModule implements OnModuleDestroy {
  constructor(
    @Inject(Upgrades) upgrades: Upgrades,
    @Inject(PortConnections) connections: PortConnections,
    @Inject(OpenPreviews) private readonly open: OpenPreviews,
  ) {
    upgrades.add(CONNECT_PATH, (upgrade) => connections.take(upgrade));
  }

  onModuleDestroy(): void {
    this.open.closeAll();
  }
}
