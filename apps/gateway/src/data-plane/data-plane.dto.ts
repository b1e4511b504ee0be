import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsInt, IsOptional, IsString, Length, Matches, Max, MaxLength, Min } from 'class-validator';
import { OptionalFlag, OptionalNumber } from '../http/dto';

const PATH = /^\/[^\0]*$/;
const USER = /^[A-Za-z0-9._-]{1,64}(:[A-Za-z0-9._-]{1,64})?$/;
const MODE = /^[0-7]{3,4}$/;
const MAX_PATH = 4095;

export class StdinQuery {
  @OptionalNumber(
    'Who writes: a number that is greater than those of earlier writers, such as the time in ' +
      'microseconds. Made up and returned when it is left out.',
    1,
    Number.MAX_SAFE_INTEGER,
  )
  writer?: number;

  @OptionalNumber('Of the first byte, among those of this writer.', 0, Number.MAX_SAFE_INTEGER)
  offset?: number;

  @OptionalFlag('The input ends after these bytes; the end counts as one more in `next`.')
  eof?: boolean;
}

export class ResizeDto {
  @ApiProperty({ minimum: 1, maximum: 1000 })
  @IsInt()
  @Min(1)
  @Max(1000)
  cols!: number;

  @ApiProperty({ minimum: 1, maximum: 1000 })
  @IsInt()
  @Min(1)
  @Max(1000)
  rows!: number;
}

export class FileQuery {
  @ApiProperty({ pattern: PATH.source, description: 'Absolute, in the sandbox.' })
  @IsString()
  @MaxLength(MAX_PATH)
  @Matches(PATH, { message: 'path must be absolute and without NUL' })
  path!: string;

  @ApiPropertyOptional({ pattern: USER.source, description: 'As which user of the sandbox.' })
  @IsOptional()
  @Matches(USER)
  user?: string;
}

export class DownloadQuery extends FileQuery {
  @OptionalNumber('Where to start.', 0, Number.MAX_SAFE_INTEGER)
  offset?: number;

  @OptionalNumber('How many bytes at most.', 0, Number.MAX_SAFE_INTEGER)
  length?: number;

  @ApiPropertyOptional({ maxLength: 128, description: 'For browsers, in the place of a key.' })
  @IsOptional()
  @IsString()
  @Length(1, 128)
  ticket?: string;
}

export class UploadQuery extends FileQuery {
  @ApiPropertyOptional({ pattern: MODE.source, description: 'In octal; else as before, or 644.' })
  @IsOptional()
  @Matches(MODE)
  mode?: string;

  @OptionalFlag('Make the directories that are missing.')
  parents?: boolean;
}

export class StatQuery extends FileQuery {
  @OptionalFlag('Of what a link leads to, instead of the link.')
  follow?: boolean;
}

export class RemoveQuery extends FileQuery {
  @OptionalFlag('A directory with everything in it.')
  recursive?: boolean;
}

export class MakeDirectoryDto {
  @ApiProperty({ pattern: PATH.source })
  @IsString()
  @MaxLength(MAX_PATH)
  @Matches(PATH, { message: 'path must be absolute and without NUL' })
  path!: string;

  @ApiPropertyOptional({ pattern: USER.source })
  @IsOptional()
  @Matches(USER)
  user?: string;

  @ApiPropertyOptional({ pattern: MODE.source })
  @IsOptional()
  @Matches(MODE)
  mode?: string;

  @OptionalFlag('Make the directories above it too; one that is there is fine.')
  parents?: boolean;
}
