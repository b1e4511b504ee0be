import type { Readable } from 'node:stream';
import { Controller, HttpCode, Inject, Param, Put, Req } from '@nestjs/common';
import { ApiBearerAuth, ApiBody, ApiConsumes, ApiOperation, ApiTags } from '@nestjs/swagger';
import { type ArtifactStore, isDigest } from '@vmux/artifacts';
import type { FastifyRequest } from 'fastify';
import type { Caller } from '../application/key-ring';
import type { Config } from '../config';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { By } from '../http/request-context';
import { ARTIFACTS, CONFIG } from '../tokens';

@ApiTags('bundles')
@ApiBearerAuth()
@Controller('v1/bundles')
export class BundlesController {
  constructor(
    @Inject(ARTIFACTS) private readonly artifacts: ArtifactStore,
    @Inject(CONFIG) private readonly config: Config,
  ) {}

  @Put(':sha256')
  @HttpCode(200)
  @Needs('sessions:write')
  @ApiOperation({ summary: 'Upload a bundle under the SHA-256 of its bytes' })
  @ApiConsumes('application/octet-stream')
  @ApiBody({ schema: { type: 'string', format: 'binary' } })
  async put(
    @By() { owner }: Caller,
    @Param('sha256') digest: string,
    @Req() request: FastifyRequest,
  ) {
    if (!isDigest(digest))
      throw new ApiError('invalid_request', 'a bundle is named by 64 lower-case hex digits');
    const { bundleBytes: maxBytes } = this.config.limits;
    const announced = Number(request.headers['content-length'] ?? 0);
    if (announced > maxBytes)
      throw new ApiError('body_too_large', `a bundle has at most ${maxBytes} bytes`, null, {
        maxBytes,
      });
    const body = request.body as Readable | undefined;
    if (!body || typeof body[Symbol.asyncIterator] !== 'function')
      throw new ApiError('unsupported_media_type', 'send the bytes as application/octet-stream');
    const { bytes, deduplicated } = await this.artifacts.put(digest, body, { owner, maxBytes });
    return { digest, bytes, deduplicated };
  }
}
