import { Controller, Get, Headers, Inject, Param, Query, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiProduces, ApiTags } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import type { Caller } from '../application/key-ring';
import type { LogTarget } from '../application/log-target';
import { SessionCommands } from '../application/session-commands';
import { ApiError } from '../http/api-error';
import { Needs, TakesShare, TakesTicket } from '../http/auth.guard';
import { By } from '../http/request-context';
import { wantsEvents } from '../http/sse';
import { resumePointOf } from './log-sse';
import { LogStreams } from './log-streams';
import { LogsQuery } from './logs.query';

@ApiTags('logs')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/logs')
export class LogsController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(LogStreams) private readonly streams: LogStreams,
  ) {}

  @Get()
  @Needs('sessions:read')
  @TakesTicket()
  @TakesShare('logs', 'watch')
  @ApiOperation({
    summary: 'Output as exact bytes, from any offset, while it runs and afterwards',
    description:
      'Raw bytes, or server-sent events with Accept: text/event-stream. An event has data ' +
      '{exec, stream, offset, at, b64} and the id <offset after it>@<revision>, which Last-Event-ID takes.',
  })
  @ApiProduces('application/octet-stream', 'text/event-stream')
  async read(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() query: LogsQuery,
    @Headers('accept') accept: string | undefined,
    @Headers('last-event-id') lastEventId: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const target = await this.targetOf(caller, sessionId, query);
    const { follow = false, limit = null } = query;
    const resumed = resumePointOf(lastEventId);
    const offset = resumed?.offset ?? query.offset ?? 0;
    const hint = resumed ? { revisionHint: resumed.revision } : {};
    const asked = { sessionId, target, offset, follow, limit, ...hint };
    if (!wantsEvents(accept))
      return this.streams.raw(reply, caller, asked, nameOf(sessionId, target));
    await this.streams.events(reply, caller, asked, (stream, end) =>
      stream.send({ event: 'end', data: end }),
    );
  }

  /** Whoever may watch terminals sees what terminals show, and nothing else of the logs. */
  private mayRead({ share }: Caller, isTerminal: boolean): void {
    if (!share || share.rights.includes('logs') || isTerminal) return;
    throw new ApiError('forbidden', 'the share opens terminals: name one, with stream=pty');
  }

  private async targetOf(caller: Caller, sessionId: string, query: LogsQuery): Promise<LogTarget> {
    const { exec: execId, stream } = query;
    if (execId === undefined) {
      if (stream)
        throw new ApiError('invalid_request', 'stream needs exec: whose stream is meant?');
      await this.sessions.session(caller, sessionId);
      this.mayRead(caller, false);
      return { kind: 'session' };
    }
    const { exec } = await this.sessions.exec(caller, sessionId, execId);
    this.mayRead(caller, exec.pty && stream === 'pty');
    return stream ? { kind: 'stream', exec, stream } : { kind: 'exec', exec };
  }
}

function nameOf(sessionId: string, target: LogTarget): string {
  const exec = target.kind === 'session' ? [] : [target.exec.id];
  const stream = target.kind === 'stream' ? [target.stream] : [];
  return `${[sessionId, ...exec, ...stream].join('-')}.log`;
}
