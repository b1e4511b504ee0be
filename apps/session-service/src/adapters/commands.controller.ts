import { Controller, Inject } from '@nestjs/common';
import { MessagePattern, Payload } from '@nestjs/microservices';
import { COMMAND_SUBJECTS, type CommandReply, parseCommand } from '@vmux/events';
import { decodeJson, type Incoming } from '@vmux/messaging';
import { CommandHandler } from '../application/commands';
import { Faults } from '../application/faults';
import type { Serving } from './bus-server';

const serving: Serving = { concurrency: 512 };

@Controller()
export class CommandsController {
  constructor(
    @Inject(CommandHandler) private readonly commands: CommandHandler,
    @Inject(Faults) private readonly faults: Faults,
  ) {}

  @MessagePattern(COMMAND_SUBJECTS, serving)
  async take(@Payload() { subject, data }: Incoming): Promise<CommandReply> {
    try {
      return await this.commands.handle(parseCommand(decodeJson(data)));
    } catch (fault) {
      return this.faults.replyTo(fault, subject);
    }
  }
}
