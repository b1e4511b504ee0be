import {
  Body,
  Controller,
  Get,
  Headers,
  HttpCode,
  Inject,
  Param,
  Post,
  Query,
  Res,
} from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import { Refusal } from '@vmux/events';
import type { FastifyReply } from 'fastify';
import type { Answer, Asking } from '../application/commander';
import { type ExecView, execHasEnded } from '../application/exec-view';
import { ExecWaiting } from '../application/exec-waiting';
import type { Caller } from '../application/key-ring';
import { execJson, execSpecJson, exitJson, viewOf } from '../application/present';
import { SessionCommands } from '../application/session-commands';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { millisecondsOf } from '../http/dto';
import { Asked, By } from '../http/request-context';
import { wantsEvents } from '../http/sse';
import { LogStreams } from '../logs/log-streams';
import {
  CancelExecQuery,
  IssueExecDto,
  ListExecsQuery,
  SignalExecDto,
  WaitQuery,
} from './exec.dto';
import { newExecFrom } from './new-exec';

const PAGE = 100;
const GRACE_MS = 10_000;
const MAX_BYTES = 1024 * 1024;

@ApiTags('execs')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/execs')
export class ExecsController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(ExecWaiting) private readonly waiting: ExecWaiting,
    @Inject(LogStreams) private readonly streams: LogStreams,
  ) {}

  @Post()
  @Needs('sessions:write')
  @ApiOperation({
    summary: 'Run a command',
    description:
      'Answers at once; with wait=30s once it has ended, with its output; with Accept: ' +
      'text/event-stream as it goes, closing with an exit event. Exactly one of command and argv.',
  })
  async issue(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() body: IssueExecDto,
    @Query() query: WaitQuery,
    @Headers('accept') accept: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const streams = wantsEvents(accept);
    if ((streams || query.wait !== undefined) && !asking.caller.scopes.includes('sessions:read'))
      throw new ApiError('forbidden', 'to be answered with output needs the scope sessions:read');
    const answer = await this.sessions.issue(asking, sessionId, newExecFrom(body));
    const issued = issuedIn(answer);
    const place = answered(reply, answer);
    reply.header('location', `/v1/sessions/${sessionId}/execs/${issued.id}`);
    if (streams) return this.stream(reply, asking.caller, sessionId, issued.id);
    const exec = { ...execJson(sessionId, issued), ...place };
    if (query.wait === undefined) {
      await reply.status(201).send(exec);
      return;
    }
    await this.answerWhenEnded(reply, sessionId, issued.id, query);
  }

  @Get()
  @Needs('sessions:read')
  @ApiOperation({ summary: 'List the execs of a session, the newest first' })
  async list(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { cursor, limit = PAGE }: ListExecsQuery,
  ) {
    const { execs } = await this.sessions.session(caller, sessionId);
    const before = cursor ?? Number.POSITIVE_INFINITY;
    const older = [...execs.values()].reverse().filter((exec) => exec.issuedRevision < before);
    const page = older.slice(0, limit);
    const next = older.length > limit ? (page.at(-1)?.issuedRevision ?? null) : null;
    return { execs: page.map((exec) => execJson(sessionId, exec)), cursor: next };
  }

  @Get(':execId')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'Show an exec' })
  async get(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
  ) {
    const { exec } = await this.sessions.exec(caller, sessionId, execId);
    const spec = await this.waiting.specOf(sessionId, exec);
    return { ...execJson(sessionId, exec), spec: spec && execSpecJson(spec) };
  }

  @Get(':execId/wait')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'Wait until an exec has ended; answers as POST with wait does' })
  async wait(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
    @Query() query: WaitQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    await this.sessions.exec(caller, sessionId, execId);
    await this.answerWhenEnded(reply, sessionId, execId, query);
  }

  @Post(':execId/cancel')
  @HttpCode(202)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'End an exec: SIGTERM, and SIGKILL after the grace' })
  async cancel(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
    @Query() { grace }: CancelExecQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const graceMs = grace === undefined ? GRACE_MS : millisecondsOf(grace);
    const answer = await this.sessions.cancel(asking, sessionId, execId, graceMs);
    return { id: execId, sessionId, cancelRequested: true, ...answered(reply, answer) };
  }

  @Post(':execId/signal')
  @HttpCode(202)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Send a signal to an exec' })
  async signal(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('execId') execId: string,
    @Body() { signal }: SignalExecDto,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const answer = await this.sessions.signal(asking, sessionId, execId, signal);
    return { id: execId, sessionId, signal, ...answered(reply, answer) };
  }

  private async answerWhenEnded(
    reply: FastifyReply,
    sessionId: string,
    execId: string,
    { wait = '30s', maxBytes = MAX_BYTES }: WaitQuery,
  ): Promise<void> {
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    const exec = await this.waiting.wait(sessionId, execId, millisecondsOf(wait), gone.signal);
    const output = await this.waiting.output(sessionId, exec, maxBytes, gone.signal);
    const status = execHasEnded(exec) ? 200 : 202;
    await reply.status(status).send({ ...execJson(sessionId, exec), output });
  }

  private async stream(reply: FastifyReply, caller: Caller, sessionId: string, execId: string) {
    const { exec } = await this.sessions.exec(caller, sessionId, execId);
    const target = { kind: 'exec', exec } as const;
    const asked = { sessionId, target, offset: 0, follow: true, limit: null };
    await this.streams.events(reply, caller, asked, async (stream) => {
      const ended = await this.waiting.wait(sessionId, execId, 0, stream.signal);
      await stream.send({ event: 'exit', data: { exec: execId, exit: exitJson(ended) } });
    });
  }
}

function issuedIn(answer: Answer): ExecView {
  const [exec] = viewOf(answer).execs.values();
  if (exec) return exec;
  throw new Refusal('exec_not_found', 'the exec is gone from the history', {});
}
