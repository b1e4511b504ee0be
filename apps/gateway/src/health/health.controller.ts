import { Controller, Get, Header, Inject, Res } from '@nestjs/common';
import { ApiOperation, ApiTags } from '@nestjs/swagger';
import { type EventStore, StreamNotFound } from '@vmux/event-store';
import type { Bus } from '@vmux/messaging';
import type { FastifyReply } from 'fastify';
import { API_KEY_STREAM } from '../application/api-keys';
import type { Config } from '../config';
import { ApiError } from '../http/api-error';
import { Open } from '../http/auth.guard';
import type { Metrics } from '../http/metrics';
import { BUS, CONFIG, EVENT_STORE, METRICS } from '../tokens';

const STORE_ANSWERS_WITHIN_MS = 2_000;

@ApiTags('health')
@Controller()
export class HealthController {
  constructor(
    @Inject(BUS) private readonly bus: Bus,
    @Inject(EVENT_STORE) private readonly store: EventStore,
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
  async ready(@Res({ passthrough: true }) reply: FastifyReply) {
    const checks = { messaging: this.bus.connected, store: await this.storeAnswers() };
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

  private async storeAnswers(): Promise<boolean> {
    try {
      const signal = AbortSignal.timeout(STORE_ANSWERS_WITHIN_MS);
      const options = { direction: 'backwards', limit: 1, signal } as const;
      for await (const _ of this.store.read(API_KEY_STREAM, options)) break;
      return !signal.aborted;
    } catch (fault) {
      return fault instanceof StreamNotFound;
    }
  }
}
