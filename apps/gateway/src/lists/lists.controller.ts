import { Controller, Get, HttpCode, Inject, Post } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import type { Caller } from '../application/key-ring';
import { Needs } from '../http/auth.guard';
import { By } from '../http/request-context';
import type { RunningIndex } from '../projections/start-index';
import { SESSION_INDEX } from '../tokens';

@ApiTags('lists')
@ApiBearerAuth()
@Controller('v1')
export class ListsController {
  constructor(@Inject(SESSION_INDEX) private readonly index: RunningIndex) {}

  @Get('usage')
  @Needs('sessions:read')
  @ApiOperation({ summary: 'What your sessions have used, as far as the lists know' })
  usage(@By() { owner }: Caller) {
    return this.index.usage(owner, Date.now());
  }

  @Post('admin/rebuild')
  @HttpCode(202)
  @Needs('admin')
  @ApiOperation({ summary: 'Forget the lists and build them again from the histories' })
  async rebuild() {
    await this.index.rebuild();
    return { rebuilding: true };
  }
}
