import { Controller, Get, Inject, Param, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import type { Caller } from '../application/key-ring';
import { SessionCommands } from '../application/session-commands';
import { usageJson } from '../application/session-usage';
import { Needs } from '../http/auth.guard';
import { By } from '../http/request-context';
import { SandboxStreams } from './sandbox-streams';
import { statsJson } from './stats-answer';
import { Transfers } from './transfers';

@ApiTags('sessions')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/stats')
export class StatsController {
  constructor(
    @Inject(SandboxStreams) private readonly streams: SandboxStreams,
    @Inject(Transfers) private readonly transfers: Transfers,
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
  ) {}

  @Get()
  @Needs('sessions:read')
  @ApiOperation({
    summary: 'What the sandbox uses now, and its peaks; one that rests is not woken',
  })
  stats(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inSandbox(caller, sessionId, signal, async (place) => {
        const stream = await this.streams.open(place, { op: 'figures' }, signal);
        const stats = statsJson(place.sandbox, await stream.result, Date.now());
        const view = await this.sessions.session(caller, sessionId);
        return { ...stats, usage: usageJson(view, Date.now()) };
      }),
    );
  }
}
