import { Body, Controller, Get, HttpCode, Inject, Param, Post, Req, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import type { CommandNamed } from '@vmux/events';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Asking } from '../application/commander';
import type { Caller } from '../application/key-ring';
import { SessionCommands } from '../application/session-commands';
import { hasEnded, type SessionView } from '../application/session-view';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs, TakesShare } from '../http/auth.guard';
import { millisecondsOf } from '../http/dto';
import { Asked, By } from '../http/request-context';
import { PublishDto, TokenDto } from './ports.dto';
import { accessOf, opens } from './preview-access';
import { PreviewNames } from './preview-names';
import { PreviewTokens } from './preview-tokens';
import { isPort, isReserved } from './reserved-ports';

const MAX_TTL_MS = 168 * 3600_000;

@ApiTags('ports')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/ports')
export class PortsController {
  constructor(
    @Inject(SessionCommands) private readonly sessions: SessionCommands,
    @Inject(PreviewNames) private readonly names: PreviewNames,
    @Inject(PreviewTokens) private readonly tokens: PreviewTokens,
  ) {}

  @Get()
  @Needs('sessions:read')
  @TakesShare('ports')
  @ApiOperation({ summary: 'The ports that listen, are declared, or have access of their own' })
  async list(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Req() request: FastifyRequest,
  ) {
    const view = await this.sessions.session(caller, sessionId);
    const ports = new Set([
      ...view.ports.keys(),
      ...(view.spec?.ports ?? []),
      ...view.access.keys(),
    ]);
    const { share } = caller;
    const sorted = [...ports].filter((port) => !share || opens(share, port)).sort((a, b) => a - b);
    return { ports: sorted.map((port) => this.portJson(view, port, request)) };
  }

  @Post(':port/token')
  @Needs('sessions:write')
  @ApiOperation({ summary: 'A token for the preview of a port; it is not stored anywhere' })
  async token(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Param('port') text: string,
    @Body() { ttl }: TokenDto = {},
    @Req() request: FastifyRequest,
  ) {
    const view = await this.sessions.session(caller, sessionId);
    const port = portOf(text);
    if (hasEnded(view))
      throw new ApiError('session_ended', `the session is ${view.status}`, null, { sessionId });
    const ttlMs = ttl === undefined ? MAX_TTL_MS : millisecondsOf(ttl);
    if (ttlMs < 1000 || ttlMs > MAX_TTL_MS)
      throw new ApiError('invalid_request', 'ttl is from 1s to 168h');
    const expiresAt = Date.now() + ttlMs;
    const { generation } = accessOf(view, port);
    const token = await this.tokens.mint({ sessionId, port, generation, expiresAt });
    const url = this.urlOf(sessionId, port, request);
    return {
      ...{ port, token, url, tokenUrl: url && `${url}?token=${token}` },
      expiresAt: new Date(expiresAt).toISOString(),
    };
  }

  @Post(':port/publish')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Open a port to everyone who has its URL' })
  publish(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('port') port: string,
    @Body() { wake = false }: PublishDto = {},
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const change = { public: true, wake, revokeTokens: false };
    return this.change(asking, sessionId, port, change, request, reply);
  }

  @Post(':port/unpublish')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Make a port private again' })
  unpublish(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('port') port: string,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const change = { public: false, wake: false, revokeTokens: false };
    return this.change(asking, sessionId, port, change, request, reply);
  }

  @Post(':port/revoke-tokens')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'End every token of a port, and what is open with one' })
  revoke(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Param('port') port: string,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const change = { public: null, wake: null, revokeTokens: true };
    return this.change(asking, sessionId, port, change, request, reply);
  }

  private async change(
    asking: Asking,
    sessionId: string,
    text: string,
    change: Omit<CommandNamed<'SetPortAccess'>['data'], 'port'>,
    request: FastifyRequest,
    reply: FastifyReply,
  ) {
    const port = portOf(text);
    const data = { port, ...change };
    const answer = await this.sessions.ask(asking, sessionId, 'SetPortAccess', data);
    const view = await this.sessions.session(asking.caller, sessionId);
    return { ...this.portJson(view, port, request), ...answered(reply, answer) };
  }

  private portJson(view: SessionView, port: number, request: FastifyRequest) {
    const known = view.ports.get(port);
    const { public: isPublic, wake } = accessOf(view, port);
    return {
      port,
      open: known !== undefined,
      address: known?.address ?? null,
      public: isPublic,
      wake,
      reserved: isReserved(view.provider, port),
      url: this.urlOf(view.id, port, request),
      openedAt: known ? new Date(known.openedAt).toISOString() : null,
    };
  }

  private urlOf(sessionId: string, port: number, request: FastifyRequest): string | null {
    return this.names.urlOf(sessionId, port, request.raw.socket.localPort ?? 0);
  }
}

export function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (!isPort(port)) throw new ApiError('invalid_request', 'a port is a number from 1 to 65535');
  return port;
}
