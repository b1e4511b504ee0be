import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import type { ShareRight } from '@vmux/events';
import {
  ArrayMaxSize,
  ArrayMinSize,
  ArrayUnique,
  IsArray,
  IsIn,
  IsInt,
  IsOptional,
  Max,
  Min,
} from 'class-validator';
import { OptionalDuration } from '../http/dto';

export const RIGHTS: readonly ShareRight[] = ['logs', 'watch', 'type', 'ports'];
const MAX_PORTS = 64;

export class GrantShareDto {
  @ApiProperty({ enum: RIGHTS, isArray: true, minItems: 1, maxItems: RIGHTS.length })
  @IsArray()
  @ArrayMinSize(1)
  @ArrayMaxSize(RIGHTS.length)
  @ArrayUnique()
  @IsIn(RIGHTS, { each: true })
  rights!: ShareRight[];

  @ApiPropertyOptional({
    type: 'integer',
    isArray: true,
    maxItems: MAX_PORTS,
    description: 'With the right ports: these alone, or all of them without it.',
  })
  @IsOptional()
  @IsArray()
  @ArrayMaxSize(MAX_PORTS)
  @ArrayUnique()
  @IsInt({ each: true })
  @Min(1, { each: true })
  @Max(65_535, { each: true })
  ports?: number[];

  @OptionalDuration('How long it opens anything: 24h without it, 720h at most.')
  expiresIn?: string;
}
