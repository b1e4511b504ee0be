import { Controller, Get, Header, Inject, Res } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import type { Bus } from '@vmux/messaging';
import type { FastifyReply } from 'fastify';
import { GuardedStore } from '../application/store-guard';
import type { Config } from '../config';
import { ApiError } from '../http/api-error';
import { Open } from '../http/auth.guard';
import type { Metrics } from '../http/metrics';
import { BUS, CONFIG, METRICS } from '../tokens';

@ApiTags('health')
@Controller()
export class HealthController {
  constructor(
    @Inject(BUS) private readonly bus: Bus,
    @Inject(GuardedStore) private readonly store: GuardedStore,
    @Inject(METRICS) private readonly metrics: Metrics,
    @Inject(CONFIG) private readonly config: Config,
  ) {}

  @Get('health')
  @Open()
  @ApiOperation({ summary: 'Whether this process lives' })
  health() {
    return { status: 'ok' };
  }

  @Get('ready')
  @Open()
  @ApiOperation({ summary: 'Whether requests can be served: 503 says what is missing' })
  ready(@Res({ passthrough: true }) reply: FastifyReply) {
    const checks = { messaging: this.bus.connected, store: this.store.answers };
    const ready = checks.messaging && checks.store;
    reply.status(ready ? 200 : 503);
    return { ready, checks };
  }

  /** Open on loopback alone: elsewhere a proxy decides who may look. */
  @Get('metrics')
  @Open()
  @Header('content-type', 'text/plain; version=0.0.4; charset=utf-8')
  @ApiOperation({ summary: 'Prometheus metrics, on loopback' })
  metricsText(): Promise<string> {
    if (!this.config.isLoopback) throw new ApiError('not_found', 'there is nothing here');
    return this.metrics.registry.metrics();
  }
}
