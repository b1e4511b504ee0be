import { Body, Controller, Get, HttpCode, Inject, Param, Post, Query, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import {
  type ClientCommandType,
  type CommandNamed,
  deriveCheckpointId,
  deriveForkId,
  givenName,
} from '@vmux/events';
import type { FastifyReply } from 'fastify';
import { type Answer, type Asking, keyOf } from '../application/commander';
import type { Caller } from '../application/key-ring';
import { Ledger } from '../application/ledger';
import { SessionCommands } from '../application/session-commands';
import type { SessionView } from '../application/session-view';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { Asked, By } from '../http/request-context';
import { checkpointAt } from './checkpoint-at';
import { ForkTrees } from './fork-trees';
import { Settling } from './settling';
import {
  ForkDto,
  MoveDto,
  RehydrateDto,
  RollbackDto,
  SettledQuery,
  TakeCheckpointDto,
} from './time.dto';

/** Each is asked for here and done by a runner afterwards: the session and its history show how it went. */
@ApiTags('time')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId')
@Needs('sessions:write')
export class TimeController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(Ledger) private readonly ledger: Ledger,
    @Inject(ForkTrees) private readonly trees: ForkTrees,
    @Inject(Settling) private readonly settling: Settling,
  ) {}

  @Post('suspend')
  @HttpCode(202)
  @ApiOperation({ summary: 'Freeze a session until it is needed' })
  suspend(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    return this.ask(reply, asking, sessionId, 'SuspendSession', {}, wait);
  }

  @Post('resume')
  @HttpCode(202)
  @ApiOperation({ summary: 'Wake a session that rests' })
  resume(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    return this.ask(reply, asking, sessionId, 'ResumeSession', {}, wait);
  }

  @Post('checkpoints')
  @HttpCode(202)
  @ApiOperation({ summary: 'Keep the files of a session as they are now' })
  async checkpoint(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() { name }: TakeCheckpointDto,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const checkpointId = deriveCheckpointId(sessionId, keyOf(asking));
    const data = { checkpointId, name: name ?? null };
    const isTaken = ({ checkpoints }: SessionView) =>
      checkpoints.get(checkpointId)?.status !== 'requested';
    return {
      checkpointId,
      ...(await this.ask(reply, asking, sessionId, 'TakeCheckpoint', data, wait, isTaken)),
    };
  }

  @Post('rollback')
  @HttpCode(202)
  @ApiOperation({ summary: 'Go back to a checkpoint, in a new sandbox' })
  rollback(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() { checkpointId, allowBaseChange = false }: RollbackDto,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const data = { checkpointId, allowBaseChange };
    return this.ask(reply, asking, sessionId, 'RollbackSession', data, wait);
  }

  @Post('rehydrate')
  @HttpCode(202)
  @ApiOperation({
    summary: 'Give a session that lost its sandbox a new one, from its last checkpoint',
  })
  async rehydrate(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() body: RehydrateDto,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const { checkpointId = null, provider = null, allowBaseChange = false, force = false } = body;
    const view = await this.sessions.session(asking.caller, sessionId);
    const reruns = body.replay ? await this.ledger.since(view, checkpointId) : { replay: [] };
    const data = { checkpointId, provider, allowBaseChange, force, ...reruns };
    // Bound to what was asked: what there is to run again changes with the history.
    const answer = await this.sessions.ask(asking, sessionId, 'RehydrateSession', data, body);
    const settled = await this.settling.wait(reply, answer, wait);
    return { id: sessionId, replayed: rerunsOf(answer), ...answered(reply, answer), ...settled };
  }

  @Post('move')
  @HttpCode(202)
  @ApiOperation({ summary: 'Move a session to another provider' })
  async move(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() { provider, allowBaseChange = false }: MoveDto,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const checkpointId = deriveCheckpointId(sessionId, keyOf(asking));
    const data = { provider, checkpointId, allowBaseChange };
    return this.ask(reply, asking, sessionId, 'MoveSession', data, wait);
  }

  @Post('fork')
  @HttpCode(202)
  @ApiOperation({ summary: 'Make new sessions out of a checkpoint of this one' })
  async fork(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() body: ForkDto,
    @Query() { wait }: SettledQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const { count = 1, provider = null } = body;
    if (body.at !== undefined && body.checkpointId !== undefined)
      throw new ApiError('invalid_request', 'give at most one of checkpointId and at');
    const key = keyOf(asking);
    const forkId = deriveForkId(sessionId, key);
    // Only a point of its history needs it as it is now: what it is called stays.
    let parent =
      body.at === undefined
        ? await this.sessions.own(asking.caller, sessionId)
        : await this.sessions.session(asking.caller, sessionId);
    const name = body.name === undefined ? parent.name : givenName(body.name);
    const newCheckpointId = deriveCheckpointId(sessionId, key);
    const checkpointId =
      body.at === undefined ? (body.checkpointId ?? null) : checkpointAt(parent, body.at);
    const data = { forkId, checkpointId, newCheckpointId, name, count, provider };
    // Bound to what was asked: a checkpoint that is taken meanwhile does not change what `at` means.
    const answer = await this.sessions.ask(asking, sessionId, 'ForkSession', data, body);
    const from = checkpointId ?? newCheckpointId;
    const isMade = (view: SessionView) => {
      parent = view;
      const isOver = view.checkpoints.get(from)?.status === 'failed';
      return isOver || (view.forked.get(forkId)?.length ?? 0) >= count;
    };
    const settled = await this.settling.wait(reply, answer, wait, isMade);
    const forks = wait === undefined ? {} : { forks: parent.forked.get(forkId) ?? [] };
    return {
      id: sessionId,
      forkId,
      checkpointId: from,
      ...answered(reply, answer),
      ...settled,
      ...forks,
    };
  }

  @Get('tree')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'The tree of forks that a session belongs to, from its first session' })
  tree(@By() caller: Caller, @Param('sessionId') sessionId: string) {
    return this.trees.of(caller, sessionId);
  }

  private async ask<T extends ClientCommandType>(
    reply: FastifyReply,
    asking: Asking,
    sessionId: string,
    type: T,
    data: CommandNamed<T>['data'],
    wait: string | undefined,
    isDone?: (view: SessionView) => boolean,
  ) {
    const answer = await this.sessions.ask(asking, sessionId, type, data);
    const settled = await this.settling.wait(reply, answer, wait, isDone);
    return { id: sessionId, ...answered(reply, answer), ...settled };
  }
}

/** What the request came to the first time: the ledger has grown since. */
const rerunsOf = ({ events }: Answer): number =>
  events
    .flatMap(({ recorded: { event } }) => (event.type === 'ReplayRequested' ? [event] : []))
    .reduce((count, { data }) => count + data.items.length, 0);
