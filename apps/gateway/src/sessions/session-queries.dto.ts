import { ApiPropertyOptional } from '@nestjs/swagger';
import { Transform } from 'class-transformer';
import {
  ArrayMaxSize,
  IsArray,
  IsIn,
  IsOptional,
  IsString,
  Length,
  Matches,
} from 'class-validator';
import { OptionalDuration, OptionalFlag, OptionalNumber, OptionalPosition } from '../http/dto';
import { PROVIDER } from './create-session.dto';

export const STATUSES = [
  'starting',
  'running',
  'suspended',
  'released',
  'lost',
  'stopping',
  'stopped',
  'failed',
] as const;

const listOf = ({ value }: { value: unknown }): unknown =>
  Array.isArray(value) || value === undefined ? value : String(value).split(',');

export class ListSessionsQuery {
  @ApiPropertyOptional({ maxLength: 512, description: 'As the page before gave it.' })
  @IsOptional()
  @IsString()
  @Length(1, 512)
  cursor?: string;

  @OptionalNumber('How many at most.', 1, 500)
  limit?: number;

  @OptionalPosition('Wait until the list shows this position.')
  after?: string;

  @ApiPropertyOptional({ enum: STATUSES, isArray: true })
  @IsOptional()
  @Transform(listOf)
  @IsArray()
  @ArrayMaxSize(STATUSES.length)
  @IsIn(STATUSES, { each: true })
  status?: (typeof STATUSES)[number][];

  @ApiPropertyOptional({ pattern: PROVIDER.source })
  @IsOptional()
  @Matches(PROVIDER)
  provider?: string;

  @ApiPropertyOptional({ maxLength: 52 })
  @IsOptional()
  @IsString()
  @Length(1, 52)
  name?: string;

  @ApiPropertyOptional({ type: [String], maxItems: 16, example: 'team=red' })
  @IsOptional()
  @Transform(listOf)
  @IsArray()
  @ArrayMaxSize(16)
  @Matches(/^[a-z0-9][a-z0-9._/-]{0,62}=.{0,256}$/, { each: true })
  label?: string[];
}

export class StopSessionQuery {
  @OptionalDuration('How long its processes have to end by themselves.')
  grace?: string;

  @OptionalFlag('Do not wait for a runner that cannot be reached.')
  force?: boolean;
}

export class DeleteSessionQuery {
  @OptionalFlag('Stop it first if it is live.')
  force?: boolean;
}
