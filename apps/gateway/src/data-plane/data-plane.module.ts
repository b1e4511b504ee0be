import { Inject, Module, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from 'pino';
import { RunnerBoard } from '../application/runner-board';
import { SessionCommands } from '../application/session-commands';
import { SessionReader } from '../application/session-reader';
import { Followers } from '../http/followers';
import { Waking } from '../time/waking';
import { LOGGER } from '../tokens';
import { FilesController } from './files.controller';
import { InputController } from './input.controller';
import { SandboxStreams } from './sandbox-streams';
import { StatsController } from './stats.controller';
import { Transfers } from './transfers';

@Module({
  controllers: [InputController, FilesController, StatsController],
  providers: [
    {
      provide: SandboxStreams,
      inject: [SessionCommands, SessionReader, RunnerBoard, Waking],
      useFactory: (
        commands: SessionCommands,
        reader: SessionReader,
        runners: RunnerBoard,
        waking: Waking,
      ) => new SandboxStreams(commands, reader, runners, waking),
    },
    {
      provide: Transfers,
      inject: [Followers, LOGGER],
      useFactory: (followers: Followers, logger: Logger) => new Transfers(followers, logger),
    },
  ],
  exports: [SandboxStreams],
})
export class DataPlaneModule implements OnModuleDestroy {
  constructor(@Inject(SandboxStreams) private readonly streams: SandboxStreams) {}

  onModuleDestroy(): void {
    this.streams.close();
  }
}
