import { Body, Controller, Delete, Get, HttpCode, Inject, Param, Post, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import { deriveShareId } from '@vmux/events';
import type { FastifyReply } from 'fastify';
import { type Asking, keyOf } from '../application/commander';
import type { Caller } from '../application/key-ring';
import { shareJson, viewOf } from '../application/present';
import { SessionCommands } from '../application/session-commands';
import { hashOfSecret, newShareSecret, shareTokenOf } from '../application/shares';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs, TakesShare } from '../http/auth.guard';
import { millisecondsOf } from '../http/dto';
import { Asked, By } from '../http/request-context';
import { GrantShareDto, RIGHTS } from './shares.dto';

const DEFAULT_MS = 24 * 3600 * 1000;
const MAX_MS = 30 * DEFAULT_MS;

@ApiTags('shares')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId')
export class SharesController {
  constructor(@Inject(SessionCommands) private readonly sessions: SessionCommands) {}

  @Post('shares')
  @Needs('sessions:write')
  @ApiOperation({
    summary: 'Share a session: its logs, its terminals, its ports',
    description: 'The token is shown once: repeating the request finds the share, with token null.',
  })
  async grant(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() body: GrantShareDto,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const { rights, ports = [], expiresIn } = body;
    const lastsMs = expiresIn === undefined ? DEFAULT_MS : millisecondsOf(expiresIn);
    if (lastsMs < 1 || lastsMs > MAX_MS)
      throw new ApiError('invalid_request', 'expiresIn must be at least 1ms and at most 720h');
    if (ports.length > 0 && !rights.includes('ports'))
      throw new ApiError('invalid_request', 'ports needs the right ports');
    const secret = newShareSecret();
    const shareId = deriveShareId(sessionId, keyOf(asking));
    const expiresAt = Date.now() + lastsMs;
    const data = { shareId, tokenHash: hashOfSecret(secret), rights, ports, expiresAt };
    const answer = await this.sessions.ask(asking, sessionId, 'GrantShare', data, body);
    const share = viewOf(answer).shares.get(shareId);
    // A repeat is answered from what the first one recorded, whose secret nobody has any more.
    const token = share?.tokenHash === data.tokenHash ? shareTokenOf(shareId, secret) : null;
    return { ...(share ? shareJson(share) : { id: shareId }), token, ...answered(reply, answer) };
  }

  @Get('shares')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'List the shares of a session, without their tokens' })
  async list(@By() caller: Caller, @Param('sessionId') sessionId: string) {
    const { shares } = await this.sessions.session(caller, sessionId);
    return { shares: [...shares.values()].map(shareJson) };
  }

  @Delete('shares/:shareId')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Revoke a share: what it opened is cut within a second' })
  async revoke(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('shareId') shareId: string,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const { shares } = await this.sessions.session(asking.caller, sessionId);
    if (!shares.has(shareId)) throw new ApiError('share_not_found', 'there is no such share');
    const answer = await this.sessions.ask(asking, sessionId, 'RevokeShare', { shareId });
    const share = (await this.sessions.session(asking.caller, sessionId)).shares.get(shareId);
    return { ...(share ? shareJson(share) : { id: shareId }), ...answered(reply, answer) };
  }

  @Get('shared')
  @Needs('sessions:read')
  @TakesShare(...RIGHTS)
  @ApiOperation({ summary: 'What a share shows of its session' })
  async shared(@By() caller: Caller, @Param('sessionId') sessionId: string) {
    const view = await this.sessions.session(caller, sessionId);
    const { share } = caller;
    const may = (...rights: readonly (typeof RIGHTS)[number][]) =>
      !share || rights.some((right) => share.rights.includes(right));
    const open = [...view.execs.values()].filter(({ endedAt, pty }) => pty && endedAt === null);
    return {
      ...{ id: view.id, name: view.name, status: view.status },
      rights: share?.rights ?? RIGHTS,
      expiresAt: share ? new Date(share.expiresAt).toISOString() : null,
      terminals: may('watch', 'type') ? open.map(({ id }) => id) : [],
      ports: may('ports')
        ? [...view.ports.keys()].filter(
            (port) => !share || share.ports.length === 0 || share.ports.includes(port),
          )
        : [],
    };
  }
}
