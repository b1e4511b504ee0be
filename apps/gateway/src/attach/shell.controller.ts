import { Body, Controller, Inject, Param, Post, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiPropertyOptional, ApiTags } from '@nestjs/swagger';
import { IsInt, IsOptional, Max, Min } from 'class-validator';
import type { FastifyReply } from 'fastify';
import type { Asking } from '../application/commander';
import { type ExecView, execHasEnded } from '../application/exec-view';
import { execJson, viewOf } from '../application/present';
import { SessionCommands } from '../application/session-commands';
import type { SessionView } from '../application/session-view';
import { answered } from '../http/answered';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { Asked } from '../http/request-context';
import { MAX_SIDE } from './frames';

export class ShellDto {
  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: MAX_SIDE, default: 80 })
  @IsOptional()
  @IsInt()
  @Min(1)
  @Max(MAX_SIDE)
  cols?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: MAX_SIDE, default: 24 })
  @IsOptional()
  @IsInt()
  @Min(1)
  @Max(MAX_SIDE)
  rows?: number;
}

const LOGIN_SHELL =
  'if command -v bash >/dev/null 2>&1; then exec bash -l; fi; SHELL=/bin/sh exec /bin/sh -l';

@ApiTags('execs')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/shell')
export class ShellController {
  constructor(@Inject(SessionCommands) private readonly sessions: SessionCommands) {}

  @Post()
  @Needs('sessions:write')
  @ApiOperation({
    summary: 'Find the shell of a session, or start it',
    description:
      'The newest shell with a terminal that runs (200), or a new one (201): attach to it.',
  })
  async shell(
    @Asked() asking: Asking,
    @Param('sessionId') sessionId: string,
    @Body() { cols = 80, rows = 24 }: ShellDto = {},
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const view = await this.sessions.session(asking.caller, sessionId);
    const shells = shellsOf(view);
    const running = shells.findLast((exec) => !execHasEnded(exec) && !exec.cancelRequested);
    if (running) {
      reply.status(200);
      return execJson(sessionId, running);
    }
    // Whoever asks at the same moment counts as many, has the same key and gets the same shell.
    const clientKey = `shell-${shells.length}`;
    const answer = await this.sessions.issue({ ...asking, clientKey }, sessionId, {
      spec: {
        command: { kind: 'shell', line: LOGIN_SHELL },
        ...{ cwd: null, user: null, pty: { cols, rows }, stdin: true, timeoutMs: null },
        ...{ keepsAwake: false, purpose: 'shell', service: null },
      },
      env: null,
      body: {},
    });
    const [issued] = viewOf(answer).execs.values();
    if (!issued) throw new ApiError('exec_not_found', 'the shell is gone from the history');
    reply.status(201).header('location', `/v1/sessions/${sessionId}/execs/${issued.id}`);
    return { ...execJson(sessionId, issued), ...answered(reply, answer) };
  }
}

const shellsOf = ({ execs }: SessionView): ExecView[] =>
  [...execs.values()].filter(({ purpose, pty }) => purpose === 'shell' && pty);
