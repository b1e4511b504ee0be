import { Module } from '@nestjs/common';
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
      inject: [SessionCommands, SessionReader],
      useFactory: (commands: SessionCommands, reader: SessionReader) =>
        new ForkTrees(commands, reader),
    },
    {
      provide: Settling,
      inject: [SessionReader],
      useFactory: (reader: SessionReader) => new Settling(reader),
    },
  ],
})
export class TimeModule {}
