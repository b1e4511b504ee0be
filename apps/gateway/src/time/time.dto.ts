import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsBoolean, IsInt, IsOptional, IsString, Length, Matches, Max, Min } from 'class-validator';
import { OptionalDuration } from '../http/dto';
import { PROVIDER } from '../sessions/create-session.dto';

export class SettledQuery {
  @OptionalDuration('Answer when it is done or has failed, or after this long.')
  wait?: string;
}

const CHECKPOINT = /^c[0-9a-f]{12}$/;

export class TakeCheckpointDto {
  @ApiPropertyOptional({ maxLength: 128 })
  @IsOptional()
  @IsString()
  @Length(1, 128)
  name?: string;
}

export class RollbackDto {
  @ApiProperty({ pattern: CHECKPOINT.source })
  @Matches(CHECKPOINT)
  checkpointId!: string;

  @ApiPropertyOptional({ default: false, description: 'Restore onto another base.' })
  @IsOptional()
  @IsBoolean()
  allowBaseChange?: boolean;
}

export class RehydrateDto {
  @ApiPropertyOptional({ pattern: CHECKPOINT.source, description: 'The last one without it.' })
  @IsOptional()
  @Matches(CHECKPOINT)
  checkpointId?: string;

  @ApiPropertyOptional({ pattern: PROVIDER.source, description: 'Where it was without it.' })
  @IsOptional()
  @Matches(PROVIDER)
  provider?: string;

  @ApiPropertyOptional({ default: false })
  @IsOptional()
  @IsBoolean()
  allowBaseChange?: boolean;

  @ApiPropertyOptional({
    default: false,
    description: 'Run again what ran since the checkpoint, as far as each ends as it did before.',
  })
  @IsOptional()
  @IsBoolean()
  replay?: boolean;

  @ApiPropertyOptional({ default: false, description: 'Give up a sandbox that cannot be reached.' })
  @IsOptional()
  @IsBoolean()
  force?: boolean;
}

export class MoveDto {
  @ApiProperty({ pattern: PROVIDER.source })
  @Matches(PROVIDER)
  provider!: string;

  @ApiPropertyOptional({ default: false })
  @IsOptional()
  @IsBoolean()
  allowBaseChange?: boolean;
}

export class ForkDto {
  @ApiPropertyOptional({
    pattern: CHECKPOINT.source,
    description: 'A new one is taken without it.',
  })
  @IsOptional()
  @Matches(CHECKPOINT)
  checkpointId?: string;

  @ApiPropertyOptional({
    type: 'integer',
    minimum: 0,
    description: 'A revision of the history: from the last checkpoint before it.',
  })
  @IsOptional()
  @IsInt()
  @Min(0)
  at?: number;

  @ApiPropertyOptional({
    maxLength: 200,
    description: 'Of the children; the session’s without it.',
  })
  @IsOptional()
  @IsString()
  @Length(1, 200)
  name?: string;

  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: 100, default: 1 })
  @IsOptional()
  @IsInt()
  @Min(1)
  @Max(100)
  count?: number;

  @ApiPropertyOptional({ pattern: PROVIDER.source })
  @IsOptional()
  @Matches(PROVIDER)
  provider?: string;
}
