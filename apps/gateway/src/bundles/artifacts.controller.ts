import { Controller, HttpCode, Inject, Post } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import { ArtifactNotFound, type ArtifactStore, type Uploads } from '@vmux/artifacts';
import type { EventStore } from '@vmux/event-store';
import { timeLimit } from '@vmux/messaging';
import { liveArtifacts } from '../application/live-artifacts';
import { ApiError } from '../http/api-error';
import { Needs } from '../http/auth.guard';
import { ARTIFACTS, EVENT_STORE, UPLOADS } from '../tokens';

const LONGEST_READ_MS = 10 * 60_000;

@ApiTags('artifacts')
@ApiBearerAuth()
@Controller('v1/artifacts')
export class ArtifactsController {
  constructor(
    @Inject(ARTIFACTS) private readonly artifacts: ArtifactStore,
    @Inject(UPLOADS) private readonly uploads: Uploads,
    @Inject(EVENT_STORE) private readonly store: EventStore,
  ) {}

  @Post('collect')
  @HttpCode(200)
  @Needs('admin')
  @ApiOperation({
    summary: 'Remove bundles and checkpoints that no session refers to and nobody has used lately',
  })
  async collect() {
    await this.uploads.dropExpired();
    const live = await liveArtifacts(this.store, timeLimit(LONGEST_READ_MS));
    try {
      return await this.artifacts.collect(live);
    } catch (fault) {
      if (!(fault instanceof ArtifactNotFound)) throw fault;
      throw new ApiError(
        'checkpoint_unusable',
        'a checkpoint that a session may go back to is not in the store: nothing was removed',
        'bring it back, or delete the session that has it',
        { artifact: fault.digest },
      );
    }
  }
}
