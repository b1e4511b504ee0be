import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Query,
  Res,
} from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import type { ArtifactStore } from '@vmux/artifacts';
import type { FastifyReply } from 'fastify';
import type { Answer, Asking } from '../application/commander';
import type { Caller } from '../application/key-ring';
import { makingJson, sessionJson, summaryJson, viewOf } from '../application/present';
import { expectCapable, expectFits, expectGpu } from '../application/provider-limits';
import { RunnerBoard } from '../application/runner-board';
import { type NewSession, SessionCommands } from '../application/session-commands';
import { costJson } from '../application/session-cost';
import type { SessionIndex } from '../application/session-index';
import { usageJson } from '../application/session-usage';
import { Tickets } from '../application/tickets';
import type { Config } from '../config';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs, TakesShare } from '../http/auth.guard';
import { millisecondsOf } from '../http/dto';
import { Asked, By } from '../http/request-context';
import { ARTIFACTS, CONFIG, SESSION_INDEX } from '../tokens';
import { CreateSessionDto } from './create-session.dto';
import { newSessionFrom } from './new-session';
import { DeleteSessionQuery, ListSessionsQuery, StopSessionQuery } from './session-queries.dto';

const PAGE = 50;

@ApiTags('sessions')
@ApiBearerAuth()
@Controller('v1/sessions')
export class SessionsController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(SESSION_INDEX) private readonly index: SessionIndex,
    @Inject(ARTIFACTS) private readonly artifacts: ArtifactStore,
    @Inject(Tickets) private readonly tickets: Tickets,
    @Inject(CONFIG) private readonly config: Config,
    @Inject(RunnerBoard) private readonly runners: RunnerBoard,
  ) {}

  @Post()
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Create a session' })
  async create(
    @Asked() asking: Asking,
    @Body() body: CreateSessionDto,
    @Query() query: Readonly<Record<string, unknown>>,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    expectNoQuery(query);
    const wanted = this.wanted(body);
    const { bundle } = wanted.spec;
    const answer = await this.sessions.create(asking, wanted, async () => {
      expectGpu(this.runners, wanted.provider, wanted.spec.resources.gpu);
      // To know a digest is no right to what it names.
      if (bundle && !(await this.artifacts.ownedBy(asking.caller.owner, bundle)))
        throw new ApiError('bundle_not_found', 'you have not uploaded this bundle', null, {
          bundle,
        });
    });
    reply.header('location', `/v1/sessions/${answer.accepted.sessionId}`);
    const view = viewOf(answer);
    const emulated = this.runners.isEmulated(view.provider);
    return { ...sessionJson(view), emulated, ...answered(reply, answer) };
  }

  /** Its own path: a gateway that does not know it creates nothing either. */
  @Post('check')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Say whether a session could be created, and create nothing' })
  check(@Body() body: CreateSessionDto) {
    const { provider, spec } = this.wanted(body);
    expectGpu(this.runners, provider, spec.resources.gpu);
    expectCapable(this.runners, provider, spec);
    return { provider, emulated: this.runners.isEmulated(provider), spec };
  }

  @Get()
  @Needs('sessions:read')
  @ApiOperation({ summary: 'List your sessions, the newest first' })
  async list(@By() caller: Caller, @Query() query: ListSessionsQuery) {
    const { cursor, limit = PAGE, after, status, provider, name, label } = query;
    const filter = {
      owner: caller.owner,
      ...(status ? { statuses: status } : {}),
      ...(provider ? { provider } : {}),
      ...(name ? { name } : {}),
      ...(label ? { labels: labelsOf(label) } : {}),
    };
    const page = await this.index.list(filter, {
      limit,
      ...(cursor ? { cursor } : {}),
      ...(after ? { after: BigInt(after) } : {}),
    });
    const sessions = page.sessions.map((summary) => ({
      ...summaryJson(summary),
      emulated: this.runners.isEmulated(summary.provider),
      making:
        summary.endedAt === null
          ? makingJson(this.runners.makingOf({ sessionId: summary.id }))
          : null,
    }));
    return { sessions, cursor: page.cursor };
  }

  @Get(':sessionId')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'Show a session, as of its last event' })
  async get(@By() caller: Caller, @Param('sessionId') sessionId: string) {
    const view = await this.sessions.session(caller, sessionId);
    const emulated = this.runners.isEmulated(view.provider);
    const making = view.pending && this.runners.makingOf({ sessionId, ...view.pending });
    const [cost, usage] = [costJson(view, Date.now()), usageJson(view, Date.now())];
    return { ...sessionJson(view), emulated, cost, usage, making: makingJson(making) };
  }

  @Post(':sessionId/stop')
  @HttpCode(202)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Stop a session; its logs and history stay' })
  async stop(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Query() { grace, force = false }: StopSessionQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const graceMs = grace === undefined ? null : millisecondsOf(grace);
    const answer = await this.sessions.stop(asking, sessionId, graceMs, force);
    return this.after(reply, answer, 'stopping');
  }

  @Delete(':sessionId')
  @HttpCode(202)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Delete a session with its logs, its history and its key' })
  async delete(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Query() { force = false }: DeleteSessionQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const answer = await this.sessions.delete(asking, sessionId, force);
    return this.after(reply, answer, 'deleted');
  }

  @Post(':sessionId/tickets')
  @Needs('sessions:read')
  @TakesShare('logs', 'watch', 'type', 'ports')
  @ApiOperation({ summary: 'A ticket for a browser: once, for 30 seconds, for this session' })
  async ticket(@By() caller: Caller, @Param('sessionId') sessionId: string) {
    await this.sessions.session(caller, sessionId);
    const { ticket, expiresAt } = await this.tickets.issue(caller, sessionId);
    return { ticket, expiresAt: new Date(expiresAt).toISOString() };
  }

  private wanted(body: CreateSessionDto): NewSession {
    const wanted = newSessionFrom(body, this.config);
    expectFits(wanted.provider, wanted.spec.resources);
    return wanted;
  }

  private after(reply: FastifyReply, answer: Answer, otherwise: string) {
    const { status } = viewOf(answer);
    const id = answer.accepted.sessionId;
    return { id, status: status === 'unborn' ? otherwise : status, ...answered(reply, answer) };
  }
}

/** A newer client may say by one that it wants something else. */
function expectNoQuery(query: object): void {
  const [unknown] = Object.keys(query);
  if (unknown === undefined) return;
  throw new ApiError(
    'invalid_request',
    `there is no query parameter ${unknown} here`,
    'leave it out',
  );
}

const labelsOf = (labels: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    labels.map((label) => {
      const at = label.indexOf('=');
      return [label.slice(0, at), label.slice(at + 1)];
    }),
  );
