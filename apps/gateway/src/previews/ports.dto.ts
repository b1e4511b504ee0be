import { ApiPropertyOptional } from '@nestjs/swagger';
import { IsBoolean, IsOptional } from 'class-validator';
import { OptionalDuration } from '../http/dto';

export class TokenDto {
  @OptionalDuration('How long it is taken, at most 168h, which is the default.')
  ttl?: string;
}

export class PublishDto {
  @ApiPropertyOptional({ default: false, description: 'Whoever looks wakes the session.' })
  @IsOptional()
  @IsBoolean()
  wake?: boolean;
}
