import { Body, Controller, HttpCode, Inject, Param, Post, Query, Req, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiBody, ApiConsumes, ApiOperation, ApiTags } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../application/key-ring';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { By } from '../http/request-context';
import { ResizeDto, StdinQuery } from './data-plane.dto';
import { SandboxStreams } from './sandbox-streams';
import { Transfers } from './transfers';
import { nextWriter } from './writers';

@ApiTags('execs')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/execs/:execId')
export class InputController {
  constructor(
    @Inject(SandboxStreams) private readonly streams: SandboxStreams,
    @Inject(Transfers) private readonly transfers: Transfers,
  ) {}

  @Post('stdin')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({
    summary: 'Write to the input of an exec',
    description:
      'Bytes are numbered by {writer, offset} and taken at most once: a request whose answer was lost ' +
      'can be repeated as it is. Answers with the offset that comes next, once the sandbox has taken ' +
      'every byte; without a body it only says how far the writer has come.',
  })
  @ApiConsumes('application/octet-stream')
  @ApiBody({ schema: { type: 'string', format: 'binary' } })
  async stdin(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
    @Query() query: StdinQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const { offset = 0, eof = false } = query;
    if (query.writer === undefined && offset > 0)
      throw new ApiError('invalid_request', 'offset needs writer: whose bytes came before?');
    const writer = query.writer ?? nextWriter();
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inExec(caller, sessionId, execId, signal, async (place) => {
        const asked = { op: 'stdin', execId, writer, offset, eof } as const;
        const stream = await this.streams.open(place, asked, signal);
        const { next } = (await this.transfers.upload(request, stream)) as { next: number };
        return { id: execId, sessionId, writer, next, eof };
      }),
    );
  }

  @Post('resize')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Set the size of the terminal of an exec' })
  async resize(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
    @Body() { cols, rows }: ResizeDto,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inExec(caller, sessionId, execId, signal, async (place) => {
        const stream = await this.streams.open(place, { op: 'resize', execId, cols, rows }, signal);
        await stream.result;
        return { id: execId, sessionId, cols, rows };
      }),
    );
  }
}
