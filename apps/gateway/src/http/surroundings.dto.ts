import { ApiPropertyOptional } from '@nestjs/swagger';
import { IsOptional, IsString, Length } from 'class-validator';
import { IsDictionary, NoNul } from './dto';

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,254}$/;

/** What a session and each of its execs may say about where commands run. */
export class SurroundingsDto {
  @ApiPropertyOptional({
    type: 'object',
    additionalProperties: { type: 'string' },
    description: 'Sealed before they are stored; answers show names only.',
  })
  @IsOptional()
  @IsDictionary({ key: VARIABLE, maxEntries: 1000, maxValueChars: 131_072 })
  env?: Record<string, string>;

  @ApiPropertyOptional({ maxLength: 4096 })
  @IsOptional()
  @IsString()
  @Length(1, 4096)
  @NoNul()
  cwd?: string;
}
