import { ApiPropertyOptional } from '@nestjs/swagger';
import { BUILD_STEP, MAX_BUILD_STEPS } from '@vmux/events';
import { Type } from 'class-transformer';
import {
  ArrayMaxSize,
  IsArray,
  IsBoolean,
  IsIn,
  IsInt,
  IsNumber,
  IsOptional,
  IsString,
  Length,
  Matches,
  Max,
  MaxLength,
  Min,
  ValidateNested,
} from 'class-validator';
import { IsDictionary } from '../http/dto';
import { SurroundingsDto } from '../http/surroundings.dto';

const DAY_MS = 24 * 3600 * 1000;
const KEEP_MS = 7 * DAY_MS;

export class ResourcesDto {
  @ApiPropertyOptional({ minimum: 0.01, maximum: 1024, default: 1 })
  @IsOptional()
  @IsNumber({ allowNaN: false, allowInfinity: false })
  @Min(0.01)
  @Max(1024)
  cpus?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 16, maximum: 16_777_216, default: 1024 })
  @IsOptional()
  @IsInt()
  @Min(16)
  @Max(16_777_216)
  memoryMiB?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 16, maximum: 1_073_741_824, default: 10_240 })
  @IsOptional()
  @IsInt()
  @Min(16)
  @Max(1_073_741_824)
  diskMiB?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 16, maximum: 4_194_304, default: 1024 })
  @IsOptional()
  @IsInt()
  @Min(16)
  @Max(4_194_304)
  pids?: number;

  @ApiPropertyOptional({ maxLength: 64, description: 'Such as A100; none without it.' })
  @IsOptional()
  @IsString()
  @Length(1, 64)
  gpu?: string;
}

export class PolicyDto {
  @ApiPropertyOptional({ type: 'integer', minimum: 1000, maximum: KEEP_MS })
  @IsOptional()
  @IsInt()
  @Min(1000)
  @Max(KEEP_MS)
  idleTimeoutMs?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 0, maximum: KEEP_MS })
  @IsOptional()
  @IsInt()
  @Min(0)
  @Max(KEEP_MS)
  keepMs?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 1000, maximum: 3650 * DAY_MS })
  @IsOptional()
  @IsInt()
  @Min(1000)
  @Max(3650 * DAY_MS)
  maxRuntimeMs?: number;

  @ApiPropertyOptional({ enum: ['on_demand', 'immediately', 'never'], default: 'on_demand' })
  @IsOptional()
  @IsIn(['on_demand', 'immediately', 'never'])
  rehydrate?: 'on_demand' | 'immediately' | 'never';

  @ApiPropertyOptional({ type: 'integer', minimum: 1000, maximum: 3650 * DAY_MS })
  @IsOptional()
  @IsInt()
  @Min(1000)
  @Max(3650 * DAY_MS)
  lostAfterMs?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 10_000, maximum: 3650 * DAY_MS })
  @IsOptional()
  @IsInt()
  @Min(10_000)
  @Max(3650 * DAY_MS)
  checkpointEveryMs?: number;

  @ApiPropertyOptional({ type: 'integer', minimum: 0, maximum: 600_000, default: 10_000 })
  @IsOptional()
  @IsInt()
  @Min(0)
  @Max(600_000)
  stopGraceMs?: number;
}

export class LogPolicyDto {
  @ApiPropertyOptional({
    type: 'integer',
    minimum: 1_048_576,
    maximum: 2 ** 50,
    default: 1_073_741_824,
  })
  @IsOptional()
  @IsInt()
  @Min(1_048_576)
  @Max(2 ** 50)
  budgetBytes?: number;

  @ApiPropertyOptional({ enum: ['truncate', 'block'], default: 'truncate' })
  @IsOptional()
  @IsIn(['truncate', 'block'])
  whenFull?: 'truncate' | 'block';
}

const LABEL = /^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$/;
export const PROVIDER = /^[a-z][a-z0-9-]{0,31}$/;

export class CreateSessionDto extends SurroundingsDto {
  @ApiPropertyOptional({
    maxLength: 200,
    example: 'geospot-rl',
    description: 'Lower case letters, digits and single dashes, at most 52.',
  })
  @IsOptional()
  @IsString()
  @Length(1, 200)
  name?: string;

  @ApiPropertyOptional({
    maxLength: 4096,
    description: 'Where the client runs: its last part is the name when none is given.',
  })
  @IsOptional()
  @IsString()
  @MaxLength(4096)
  directory?: string;

  @ApiPropertyOptional({ pattern: PROVIDER.source, example: 'ns' })
  @IsOptional()
  @Matches(PROVIDER)
  provider?: string;

  @ApiPropertyOptional({ maxLength: 512 })
  @IsOptional()
  @IsString()
  @Length(1, 512)
  image?: string;

  @ApiPropertyOptional({
    type: [String],
    maxItems: MAX_BUILD_STEPS,
    example: ['pip install numpy'],
    description:
      'Lines for a shell, run on top of the image once for all sessions that ask for the same.',
  })
  @IsOptional()
  @IsArray()
  @ArrayMaxSize(MAX_BUILD_STEPS)
  @Matches(BUILD_STEP, { each: true })
  build?: string[];

  @ApiPropertyOptional({ type: ResourcesDto })
  @IsOptional()
  @ValidateNested()
  @Type(() => ResourcesDto)
  resources?: ResourcesDto;

  @ApiPropertyOptional({ maxLength: 64 })
  @IsOptional()
  @IsString()
  @Length(1, 64)
  user?: string;

  @ApiPropertyOptional({ pattern: '^[0-9a-f]{64}$', description: 'A bundle that you uploaded.' })
  @IsOptional()
  @Matches(/^[0-9a-f]{64}$/)
  bundle?: string;

  @ApiPropertyOptional({ enum: ['auto', 'none'] })
  @IsOptional()
  @IsIn(['auto', 'none'])
  setup?: 'auto' | 'none';

  @ApiPropertyOptional({ type: [Number], maxItems: 64 })
  @IsOptional()
  @IsArray()
  @ArrayMaxSize(64)
  @IsInt({ each: true })
  @Min(1, { each: true })
  @Max(65_535, { each: true })
  ports?: number[];

  @ApiPropertyOptional({ default: false, description: 'Whether it may reach the network.' })
  @IsOptional()
  @IsBoolean()
  egress?: boolean;

  @ApiPropertyOptional({ type: [String], maxItems: 256 })
  @IsOptional()
  @IsArray()
  @ArrayMaxSize(256)
  @IsString({ each: true })
  @Length(1, 256, { each: true })
  allowHosts?: string[];

  @ApiPropertyOptional({ type: 'object', additionalProperties: { type: 'string' } })
  @IsOptional()
  @IsDictionary({ key: LABEL, maxEntries: 64, maxValueChars: 256 })
  labels?: Record<string, string>;

  @ApiPropertyOptional({ type: PolicyDto })
  @IsOptional()
  @ValidateNested()
  @Type(() => PolicyDto)
  policy?: PolicyDto;

  @ApiPropertyOptional({ type: LogPolicyDto })
  @IsOptional()
  @ValidateNested()
  @Type(() => LogPolicyDto)
  log?: LogPolicyDto;
}
