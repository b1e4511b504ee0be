import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { Type } from 'class-transformer';
import {
  ArrayMaxSize,
  ArrayMinSize,
  IsArray,
  IsBoolean,
  IsIn,
  IsInt,
  IsOptional,
  IsString,
  Length,
  Matches,
  Max,
  MaxLength,
  Min,
  ValidateNested,
} from 'class-validator';
import { NoNul, OptionalDuration, OptionalNumber } from '../http/dto';
import { SurroundingsDto } from '../http/surroundings.dto';

export class PtyDto {
  @ApiProperty({ type: 'integer', minimum: 1, maximum: 65_535 })
  @IsInt()
  @Min(1)
  @Max(65_535)
  cols!: number;

  @ApiProperty({ type: 'integer', minimum: 1, maximum: 65_535 })
  @IsInt()
  @Min(1)
  @Max(65_535)
  rows!: number;
}

export class ServiceDto {
  @ApiProperty({ maxLength: 64 })
  @IsString()
  @Length(1, 64)
  name!: string;

  @ApiPropertyOptional({ default: true })
  @IsOptional()
  @IsBoolean()
  restart?: boolean;
}

/** Exactly one of `command` and `argv`. */
export class IssueExecDto extends SurroundingsDto {
  @ApiPropertyOptional({ maxLength: 131_072, example: 'npm test', description: 'For the shell.' })
  @IsOptional()
  @IsString()
  @Length(1, 131_072)
  @NoNul()
  command?: string;

  @ApiPropertyOptional({ type: [String], maxItems: 4096, example: ['npm', 'test'] })
  @IsOptional()
  @IsArray()
  @ArrayMinSize(1)
  @ArrayMaxSize(4096)
  @IsString({ each: true })
  @MaxLength(131_072, { each: true })
  @NoNul()
  argv?: string[];

  @ApiPropertyOptional({ pattern: '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$' })
  @IsOptional()
  @Matches(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/)
  user?: string;

  @ApiPropertyOptional({ type: PtyDto })
  @IsOptional()
  @ValidateNested()
  @Type(() => PtyDto)
  pty?: PtyDto;

  @ApiPropertyOptional({ default: false, description: 'Whether it will be given input.' })
  @IsOptional()
  @IsBoolean()
  stdin?: boolean;

  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: 315_360_000_000 })
  @IsOptional()
  @IsInt()
  @Min(1)
  @Max(315_360_000_000)
  timeoutMs?: number;

  @ApiPropertyOptional({ default: true, description: 'While it runs the session is not idle.' })
  @IsOptional()
  @IsBoolean()
  keepsAwake?: boolean;

  @ApiPropertyOptional({ enum: ['user', 'setup', 'shell', 'service', 'replay'], default: 'user' })
  @IsOptional()
  @IsIn(['user', 'setup', 'shell', 'service', 'replay'])
  purpose?: 'user' | 'setup' | 'shell' | 'service' | 'replay';

  @ApiPropertyOptional({ type: ServiceDto })
  @IsOptional()
  @ValidateNested()
  @Type(() => ServiceDto)
  service?: ServiceDto;
}

export class SignalExecDto {
  @ApiProperty({ pattern: '^SIG[A-Z0-9+]{2,12}$', example: 'SIGINT' })
  @Matches(/^SIG[A-Z0-9+]{2,12}$/)
  signal!: string;
}

export class WaitQuery {
  @OptionalDuration('Answer once it has ended, or after this long (at most 10m).')
  wait?: string;

  @OptionalNumber('How many bytes of each stream to answer with.', 0, 4 * 1024 * 1024)
  maxBytes?: number;
}

export class CancelExecQuery {
  @OptionalDuration('How long it has to end by itself after SIGTERM.')
  grace?: string;
}

export class ListExecsQuery {
  @OptionalNumber('As the page before gave it.', 0, Number.MAX_SAFE_INTEGER)
  cursor?: number;

  @OptionalNumber('How many at most.', 1, 500)
  limit?: number;
}
