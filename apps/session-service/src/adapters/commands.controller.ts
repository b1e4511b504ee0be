import { Controller, Inject } from '@nestjs/common';
import { MessagePattern, Payload } from '@nestjs/microservices';
import { COMMAND_SUBJECTS, type CommandReply, parseCommand } from '@vmux/events';
import { decodeJson, type Incoming } from '@vmux/messaging';
import { CommandHandler } from '../application/commands';
import { Answering } from './answering';
import type { Serving } from './bus-server';

const serving: Serving = { concurrency: 512 };

@Controller()
export class CommandsController {
  constructor(
    @Inject(Answering) private readonly answering: Answering,
    @Inject(CommandHandler) private readonly commands: CommandHandler,
  ) {}

  @MessagePattern(COMMAND_SUBJECTS, serving)
  take(@Payload() message: Incoming): Promise<CommandReply> {
    return this.answering.answer('command', message, async (data) => {
      const command = parseCommand(decodeJson(data));
      // A gateway's clock that is ahead must not push deadlines into the future.
      return this.commands.handle({ ...command, at: Math.min(command.at, Date.now()) });
    });
  }
}
