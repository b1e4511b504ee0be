import { Controller, Get, Inject } from '@nestjs/common';
import { ApiBearerAuth, ApiOperation, ApiTags } from '@nestjs/swagger';
import { runnerJson } from '../application/present';
import { RunnerBoard } from '../application/runner-board';
import { Needs } from '../http/auth.guard';

@ApiTags('runners')
@ApiBearerAuth()
@Controller('v1/runners')
export class RunnersController {
  constructor(@Inject(RunnerBoard) private readonly board: RunnerBoard) {}

  @Get()
  @Needs('sessions:read')
  @ApiOperation({ summary: 'The runners, what they offer, and how much room they have' })
  list() {
    const runners = this.board.list();
    const open = runners.filter(({ alive, heartbeat }) => alive && !heartbeat.draining);
    const sum = (of: 'sandboxes' | 'maxSandboxes' | 'freeMemoryMiB' | 'freeDiskMiB') =>
      open.reduce((total, { heartbeat }) => total + heartbeat.capacity[of], 0);
    return {
      runners: runners.map(runnerJson),
      capacity: {
        runners: open.length,
        sandboxes: sum('sandboxes'),
        maxSandboxes: sum('maxSandboxes'),
        freeMemoryMiB: sum('freeMemoryMiB'),
        freeDiskMiB: sum('freeDiskMiB'),
      },
    };
  }
}
