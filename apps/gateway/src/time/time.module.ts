import { Module } from '@nestjs/common';
import { RunnerBoard } from '../application/runner-board';
import { SessionCommands } from '../application/session-commands';
import { SessionReader } from '../application/session-reader';
import { ForkTrees } from './fork-trees';
import { Settling } from './settling';
import { TimeController } from './time.controller';

@Module({
  controllers: [TimeController],
  providers: [
    {
      provide: ForkTrees,
      inject: [SessionCommands, SessionReader, RunnerBoard],
      useFactory: (commands: SessionCommands, reader: SessionReader, runners: RunnerBoard) =>
        new ForkTrees(commands, reader, runners),
    },
    {
      provide: Settling,
      inject: [SessionReader],
      useFactory: (reader: SessionReader) => new Settling(reader),
    },
  ],
})
export class TimeModule {}
