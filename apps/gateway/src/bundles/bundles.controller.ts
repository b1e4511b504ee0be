import type { Readable } from 'node:stream';
import { Controller, Get, Headers, HttpCode, Inject, Param, Put, Req, Res } from '@nestjs/common';
import {
  ApiBearerAuth,
  ApiBody,
  ApiConsumes,
  ApiHeader,
  ApiOperation,
  ApiProduces,
  ApiTags,
} from '@nestjs/swagger';
import { type ArtifactStore, isDigest, type Uploads } from '@vmux/artifacts';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import type { Caller } from '../application/key-ring';
import type { Config } from '../config';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { Followers } from '../http/followers';
import { Outgoing } from '../http/outgoing';
import { By } from '../http/request-context';
import { ARTIFACTS, CONFIG, LOGGER, UPLOADS } from '../tokens';
import { partBetween, partOf, wantedOf } from './ranges';

@ApiTags('bundles')
@ApiBearerAuth()
@Controller('v1/bundles')
export class BundlesController {
  constructor(
    @Inject(ARTIFACTS) private readonly artifacts: ArtifactStore,
    @Inject(UPLOADS) private readonly uploads: Uploads,
    @Inject(CONFIG) private readonly config: Config,
    @Inject(Followers) private readonly followers: Followers,
    @Inject(LOGGER) private readonly logger: Logger,
  ) {}

  @Put(':sha256')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({
    summary:
      'Upload a bundle under the SHA-256 of its bytes; with Content-Range a part of it, which stays when it is cut',
  })
  @ApiConsumes('application/octet-stream')
  @ApiHeader({ name: 'content-range', required: false, example: 'bytes 0-52428799/52428800' })
  @ApiBody({ schema: { type: 'string', format: 'binary' } })
  async put(
    @By() { owner }: Caller,
    @Param('sha256') digest: string,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ) {
    expectDigest(digest);
    const { bundleBytes: maxBytes } = this.config.limits;
    const announced = Number(request.headers['content-length'] ?? 0);
    if (announced > maxBytes)
      throw new ApiError('body_too_large', `a bundle has at most ${maxBytes} bytes`, null, {
        maxBytes,
      });
    const body = request.body as Readable | undefined;
    if (!body || typeof body[Symbol.asyncIterator] !== 'function')
      throw new ApiError('unsupported_media_type', 'send the bytes as application/octet-stream');
    const range = request.headers['content-range'];
    const options = { owner, maxBytes };
    const taken =
      range === undefined
        ? await this.artifacts.put(digest, body, options)
        : await this.uploads.take(digest, partOf(range), body, options);
    if ('offset' in taken) reply.status(202);
    return 'offset' in taken
      ? { digest, offset: taken.offset }
      : { digest, bytes: taken.bytes, deduplicated: taken.deduplicated };
  }

  @Get(':sha256/upload')
  @Needs('sessions:write')
  @ApiOperation({
    summary:
      'How much of a bundle has come of an upload of your own that was cut, and whether you have it already',
  })
  async upload(@By() { owner }: Caller, @Param('sha256') digest: string) {
    expectDigest(digest);
    const stored = await this.artifacts.ownedBy(owner, digest);
    return { digest, stored, offset: await this.uploads.offsetOf(owner, digest) };
  }

  @Get(':sha256')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'Download a bundle of your own; with Range a part of it' })
  @ApiProduces('application/octet-stream')
  @ApiHeader({ name: 'range', required: false, example: 'bytes=1048576-' })
  @ApiHeader({ name: 'if-range', required: false })
  async get(
    @By() caller: Caller,
    @Param('sha256') digest: string,
    @Headers('range') range: string | undefined,
    @Headers('if-range') ifRange: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    expectDigest(digest);
    if (!(await this.artifacts.ownedBy(caller.owner, digest)))
      throw new ApiError('bundle_not_found', `you have no bundle ${digest}`);
    const { bytes: total, stream } = await this.artifacts.open(digest);
    const held = this.followers.enter(caller);
    try {
      const etag = `"${digest}"`;
      const isSame = ifRange === undefined || ifRange === etag;
      const part = isSame ? wantedOf(range, total) : undefined;
      const { from, end } = part ?? { from: 0, end: total };
      const headers = {
        'content-type': 'application/octet-stream',
        'content-length': String(end - from),
        'accept-ranges': 'bytes',
        etag,
        ...(part ? { 'content-range': `bytes ${from}-${end - 1}/${total}` } : {}),
      };
      const out = new Outgoing(reply, headers, held.signal);
      await this.send(out, part ? 206 : 200, partBetween({ from, end }, stream));
    } finally {
      held.leave();
      stream.destroy();
    }
  }

  private async send(out: Outgoing, status: number, bytes: AsyncIterable<Buffer>): Promise<void> {
    try {
      for await (const piece of bytes) {
        if (!out.hasBegun) out.begin(status);
        if (out.signal.aborted) return out.cut();
        await out.write(piece);
      }
      if (!out.hasBegun) out.begin(status);
      out.end();
    } catch (fault) {
      if (!out.hasBegun) throw fault;
      this.logger.warn({ err: fault }, 'a download was cut');
      out.cut();
    }
  }
}

function expectDigest(digest: string): void {
  if (!isDigest(digest))
    throw new ApiError('invalid_request', 'a bundle is named by 64 lower-case hex digits');
}
