import { Body, Controller, Delete, Get, Inject, Param, Post } from '@nestjs/common';
import {
  ApiBearerAuth,
  ApiOperation,
  ApiProperty,
  ApiPropertyOptional,
  ApiTags,
} from '@nestjs/swagger';
import {
  ArrayMaxSize,
  ArrayMinSize,
  ArrayUnique,
  IsArray,
  IsIn,
  IsInt,
  IsOptional,
  IsString,
  Length,
  Matches,
  Max,
  Min,
} from 'class-validator';
import { type ApiKey, SCOPES, type Scope, tokenOf } from '../application/api-keys';
import { canonicalDigest } from '../application/canonical-json';
import { type Asking, keyOf } from '../application/commander';
import { type Issuer, KeyRing } from '../application/key-ring';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { Asked } from '../http/request-context';

const OWNER = /^[A-Za-z0-9._@:-]{1,128}$/;

export class CreateApiKeyDto {
  @ApiProperty({ maxLength: 128, example: 'ci' })
  @IsString()
  @Length(1, 128)
  name!: string;

  @ApiPropertyOptional({ pattern: OWNER.source, description: 'Whose sessions; yours without it.' })
  @IsOptional()
  @Matches(OWNER)
  owner?: string;

  @ApiProperty({ enum: SCOPES, isArray: true, minItems: 1, maxItems: SCOPES.length })
  @IsArray()
  @ArrayMinSize(1)
  @ArrayMaxSize(SCOPES.length)
  @ArrayUnique()
  @IsIn(SCOPES, { each: true })
  scopes!: Scope[];

  @ApiPropertyOptional({ type: 'integer', minimum: 0, maximum: 1_000_000 })
  @IsOptional()
  @IsInt()
  @Min(0)
  @Max(1_000_000)
  liveSessions?: number;
}

@ApiTags('api keys')
@ApiBearerAuth()
@Controller('v1/api-keys')
export class ApiKeysController {
  constructor(@Inject(KeyRing) private readonly keys: KeyRing) {}

  @Post()
  @Needs('admin')
  @ApiOperation({
    summary: 'Create an API key',
    description: 'The key is shown once: repeating the request finds it again, with key null.',
  })
  async create(@Asked() asking: Asking, @Body() body: CreateApiKeyDto) {
    const { name, scopes, owner = asking.caller.owner, liveSessions = null } = body;
    const wanted = { name, scopes, owner, liveSessions };
    const { key, secret } = await this.keys.create(wanted, issuerOf(asking, body));
    return { ...keyJson(key), key: secret && tokenOf(key.keyId, secret) };
  }

  @Get()
  @Needs('admin')
  @ApiOperation({ summary: 'List all API keys, without their secrets' })
  async list() {
    return { keys: (await this.keys.list()).map(keyJson) };
  }

  @Delete(':keyId')
  @Needs('admin')
  @ApiOperation({ summary: 'Revoke an API key' })
  async revoke(@Asked() asking: Asking, @Param('keyId') keyId: string) {
    const key = await this.keys.revoke(keyId, issuerOf(asking, {}));
    if (!key) throw new ApiError('api_key_not_found', 'there is no such key');
    return keyJson(key);
  }
}

const issuerOf = (asking: Asking, body: unknown): Issuer => ({
  principal: `key:${asking.caller.keyId}`,
  correlationId: asking.requestId,
  requestKey: keyOf(asking),
  digest: canonicalDigest(body),
});

const keyJson = ({ keyId, owner, name, scopes, liveSessions, createdAt, revokedAt }: ApiKey) => ({
  ...{ id: keyId, owner, name, scopes, liveSessions },
  createdAt: new Date(createdAt).toISOString(),
  revokedAt: revokedAt === null ? null : new Date(revokedAt).toISOString(),
});
