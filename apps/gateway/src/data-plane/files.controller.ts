import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Put,
  Query,
  Req,
  Res,
} from '@nestjs/common';
import {
  ApiBearerAuth,
  ApiBody,
  ApiConsumes,
  ApiOperation,
  ApiProduces,
  ApiTags,
} from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../application/key-ring';
import { Needs, TakesTicket } from '../http/auth.guard';
import { By } from '../http/request-context';
import {
  DownloadQuery,
  FileQuery,
  MakeDirectoryDto,
  RemoveQuery,
  StatQuery,
  UploadQuery,
} from './data-plane.dto';
import { fileJson, LISTING, listingOf, savedAs } from './file-answers';
import { type SandboxRequest, SandboxStreams } from './sandbox-streams';
import { Transfers } from './transfers';

@ApiTags('files')
@ApiBearerAuth()
@Controller('v1/sessions/:sessionId/files')
export class FilesController {
  constructor(
    @Inject(SandboxStreams) private readonly streams: SandboxStreams,
    @Inject(Transfers) private readonly transfers: Transfers,
  ) {}

  @Get()
  @Needs('sessions:read')
  @TakesTicket()
  @ApiOperation({ summary: 'Download a file; an answer that is cut off is not the whole file' })
  @ApiProduces('application/octet-stream')
  download(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user, offset = 0, length }: DownloadQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const range = { offset, length: length ?? null };
    const request = { op: 'read', path, user: user ?? null, ...range } as const;
    return this.send(caller, sessionId, reply, request, savedAs(path));
  }

  @Put()
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Upload a file: the old one stays until all of the new one is there' })
  @ApiConsumes('application/octet-stream')
  @ApiBody({ schema: { type: 'string', format: 'binary' } })
  async upload(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user, mode, parents = false }: UploadQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const asked = { op: 'write', path, user: user ?? null, mode: modeOf(mode), parents } as const;
    const { bytes } = (await this.take(caller, sessionId, request, reply, asked)) as {
      bytes: number;
    };
    return { path, bytes };
  }

  @Get('list')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'List a directory, in no order' })
  @ApiProduces('application/json')
  list(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user }: FileQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const request = { op: 'list', path, user: user ?? null } as const;
    return this.send(caller, sessionId, reply, request, LISTING, listingOf(path));
  }

  @Get('stat')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'Show what is at a path' })
  async stat(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user, follow = false }: StatQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const request = { op: 'stat', path, user: user ?? null, followLink: follow } as const;
    return { path, ...fileJson(await this.ask(caller, sessionId, reply, request)) };
  }

  @Delete()
  @HttpCode(204)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Remove a file or a directory' })
  async remove(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user, recursive = false }: RemoveQuery,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<void> {
    await this.ask(caller, sessionId, reply, { op: 'remove', path, user: user ?? null, recursive });
  }

  @Post('mkdir')
  @HttpCode(201)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Make a directory' })
  async makeDirectory(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Body() { path, user, mode, parents = false }: MakeDirectoryDto,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const octal = modeOf(mode) ?? 0o755;
    const request = { op: 'mkdir', path, user: user ?? null, mode: octal, parents } as const;
    await this.ask(caller, sessionId, reply, request);
    return { path };
  }

  @Get('archive')
  @Needs('sessions:read')
  @TakesTicket()
  @ApiOperation({ summary: 'Download a directory, or a file, as a tar archive' })
  @ApiProduces('application/x-tar')
  archive(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user }: DownloadQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const headers = { ...savedAs(`${path}.tar`), 'content-type': 'application/x-tar' };
    const request = { op: 'tar-out', path, user: user ?? null } as const;
    return this.send(caller, sessionId, reply, request, headers);
  }

  @Put('archive')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Unpack a tar archive into a directory; entries come one by one' })
  @ApiConsumes('application/octet-stream')
  @ApiBody({ schema: { type: 'string', format: 'binary' } })
  async unpack(
    @By() caller: Caller,
    @Param('sessionId') sessionId: string,
    @Query() { path, user }: FileQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    const asked = { op: 'tar-in', path, user: user ?? null } as const;
    const { entries } = (await this.take(caller, sessionId, request, reply, asked)) as {
      entries: number;
    };
    return { path, entries };
  }

  private ask(caller: Caller, sessionId: string, reply: FastifyReply, request: SandboxRequest) {
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inSandbox(caller, sessionId, signal, async (place) => {
        const stream = await this.streams.open(place, request, signal);
        return stream.result;
      }),
    );
  }

  private take(
    caller: Caller,
    sessionId: string,
    request: FastifyRequest,
    reply: FastifyReply,
    asked: SandboxRequest,
  ): Promise<unknown> {
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inSandbox(caller, sessionId, signal, async (place) => {
        const stream = await this.streams.open(place, asked, signal);
        return this.transfers.upload(request, stream);
      }),
    );
  }

  private send(
    caller: Caller,
    sessionId: string,
    reply: FastifyReply,
    request: SandboxRequest,
    headers: Readonly<Record<string, string>>,
    around: Parameters<Transfers['download']>[4] = {},
  ): Promise<void> {
    return this.transfers.during(caller, reply, (signal) =>
      this.streams.inSandbox(caller, sessionId, signal, async (place) => {
        const stream = await this.streams.open(place, request, signal);
        await this.transfers.download(reply, stream, headers, signal, around);
      }),
    );
  }
}

const modeOf = (octal: string | undefined): number | null =>
  octal === undefined ? null : Number.parseInt(octal, 8);
