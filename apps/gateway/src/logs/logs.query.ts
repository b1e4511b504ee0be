import { ApiPropertyOptional } from '@nestjs/swagger';
import { IsIn, IsOptional, IsString, Length, Matches } from 'class-validator';
import { OptionalFlag, OptionalNumber } from '../http/dto';

const EXEC_ID = /^e[0-9a-f]{12}$/;

export class LogsQuery {
  @OptionalNumber(
    'Where to start: in one stream of an exec when both are given, else in the merged output.',
    0,
    Number.MAX_SAFE_INTEGER,
  )
  offset?: number;

  @OptionalFlag('Go on with what comes until the session (or the exec) has ended.')
  follow?: boolean;

  @ApiPropertyOptional({ pattern: EXEC_ID.source })
  @IsOptional()
  @Matches(EXEC_ID)
  exec?: string;

  @ApiPropertyOptional({ enum: ['stdout', 'stderr', 'pty'], description: 'Needs exec.' })
  @IsOptional()
  @IsIn(['stdout', 'stderr', 'pty'])
  stream?: 'stdout' | 'stderr' | 'pty';

  @OptionalNumber('How many bytes at most.', 1, Number.MAX_SAFE_INTEGER)
  limit?: number;

  @ApiPropertyOptional({ maxLength: 128, description: 'For browsers, in the place of a key.' })
  @IsOptional()
  @IsString()
  @Length(1, 128)
  ticket?: string;
}
