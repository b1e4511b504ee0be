import { Controller, Get, Headers, Inject, Param, Query, Res } from '@nestjs/common';
import {
  ApiBearerAuth,
  ApiOperation,
  ApiProduces,
  ApiPropertyOptional,
  ApiTags,
} from '@nestjs/swagger';
import { IsOptional, IsString, Length } from 'class-validator';
import type { FastifyReply } from 'fastify';
import type { Logger } from 'pino';
import { HistoryReader, type HistoryRequest } from '../application/history-reader';
import type { Caller } from '../application/key-ring';
import { SessionCommands } from '../application/session-commands';
import { Needs, TakesTicket } from '../http/auth.guard';
import { OptionalFlag, OptionalNumber } from '../http/dto';
import { Followers, type Held } from '../http/followers';
import { Outgoing } from '../http/outgoing';
import { By } from '../http/request-context';
import { EventStream, wantsEvents } from '../http/sse';
import { LOGGER } from '../tokens';

export class HistoryQuery {
  @OptionalNumber(
    'The first revision, which is 0 for the whole history.',
    0,
    Number.MAX_SAFE_INTEGER,
  )
  from?: number;

  @OptionalFlag('Go on with what happens.')
  follow?: boolean;

  @OptionalNumber('How many events at most.', 1, 1_000_000_000)
  limit?: number;

  @ApiPropertyOptional({ maxLength: 128, description: 'For browsers, in the place of a key.' })
  @IsOptional()
  @IsString()
  @Length(1, 128)
  ticket?: string;
}

@ApiTags('history')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/events')
export class HistoryController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(HistoryReader) private readonly history: HistoryReader,
    @Inject(Followers) private readonly followers: Followers,
    @Inject(LOGGER) private readonly logger: Logger,
  ) {}

  @Get()
  @Needs('sessions:read')
  @TakesTicket()
  @ApiOperation({
    summary: 'Everything that happened to a session, from any revision',
    description:
      'JSON lines, or server-sent events with Accept: text/event-stream, whose id is the revision.',
  })
  @ApiProduces('application/x-ndjson', 'text/event-stream')
  async read(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { from, follow = false, limit = Number.MAX_SAFE_INTEGER }: HistoryQuery,
    @Headers('accept') accept: string | undefined,
    @Headers('last-event-id') lastEventId: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    await this.sessions.session(caller, sessionId);
    const seen = /^\d{1,15}$/.test(lastEventId ?? '') ? Number(lastEventId) : null;
    const asked = { sessionId, from: seen === null ? (from ?? 0) : seen + 1, follow, limit };
    const held = this.followers.enter(caller);
    try {
      if (wantsEvents(accept)) await this.events(reply, asked, held);
      else await this.lines(reply, { ...asked, signal: held.signal });
    } finally {
      held.leave();
    }
  }

  private async events(
    reply: FastifyReply,
    asked: Omit<HistoryRequest, 'signal'>,
    held: Held,
  ): Promise<void> {
    const stream = new EventStream(reply, held);
    const events = await this.history.open({ ...asked, signal: stream.signal });
    await stream.run(
      async () => {
        for await (const event of events) {
          await stream.send({ id: String(event.revision), event: 'fact', data: event });
          if (stream.signal.aborted) return;
        }
        await stream.send({ event: 'end', data: {} });
      },
      (fault) => this.logger.warn({ err: fault }, 'a history read ended'),
    );
  }

  private async lines(reply: FastifyReply, asked: HistoryRequest): Promise<void> {
    const headers = { 'content-type': 'application/x-ndjson; charset=utf-8' };
    const out = new Outgoing(reply, headers, asked.signal);
    const events = await this.history.open({ ...asked, signal: out.signal });
    out.begin();
    try {
      for await (const event of events) {
        await out.write(`${JSON.stringify(event)}\n`);
        if (out.signal.aborted) return;
      }
      out.end();
    } catch (fault) {
      if (!out.signal.aborted) this.logger.warn({ err: fault }, 'a history read was cut');
      out.cut();
    }
  }
}
