import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** What Prometheus is told. No label names a session, an owner or a key. */
export class Metrics {
  readonly registry = new Registry();
  private readonly requests = new Histogram({
    name: 'vmux_gateway_request_seconds',
    help: 'Time to answer a request, by route.',
    labelNames: ['method', 'route', 'status'] as const,
    buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
    registers: [this.registry],
  });
  readonly followers = new Gauge({
    name: 'vmux_gateway_followers',
    help: 'Streams of logs and history that are open.',
    registers: [this.registry],
  });
  readonly bytes = new Counter({
    name: 'vmux_gateway_log_bytes_total',
    help: 'Bytes of output that were delivered.',
    registers: [this.registry],
  });
  readonly refused = new Counter({
    name: 'vmux_gateway_refused_total',
    help: 'Requests that were not let in, by reason.',
    labelNames: ['code'] as const,
    registers: [this.registry],
  });

  constructor() {
    collectDefaultMetrics({ register: this.registry });
  }

  observe(method: string, route: string, status: number, elapsedMs: number): void {
    this.requests.observe({ method, route, status: String(status) }, elapsedMs / 1000);
  }

  gauge(name: string, help: string, value: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.set(value());
      },
    });
  }
}
