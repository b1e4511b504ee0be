import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { RelayStatus } from '../relay/relay';

export class Metrics {
  readonly registry = new Registry();

  readonly requests = new Histogram({
    name: 'vmux_session_service_request_seconds',
    help: 'Time from a request over NATS to its answer.',
    labelNames: ['kind', 'outcome'],
    buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers: [this.registry],
  });

  readonly outputBytes = new Counter({
    name: 'vmux_session_service_output_bytes_total',
    help: 'Bytes of output that were taken into frames.',
    registers: [this.registry],
  });

  readonly ordersSent = new Counter({
    name: 'vmux_session_service_orders_total',
    help: 'Orders sent, repeats included.',
    labelNames: ['type'],
    registers: [this.registry],
  });

  constructor() {
    collectDefaultMetrics({ register: this.registry });
  }

  /** How far the copies in JetStream are. */
  relays(status: () => readonly RelayStatus[]): void {
    const perCopy = (name: string, help: string, value: (relay: RelayStatus) => number) =>
      new Gauge({
        name: `vmux_session_service_relay_${name}`,
        help,
        labelNames: ['stream'],
        registers: [this.registry],
        collect() {
          for (const relay of status()) this.set({ stream: relay.stream }, value(relay));
        },
      });
    perCopy('published', 'Events that this process published.', ({ published }) => published);
    perCopy('position', 'Of the last event that is known to be in the copy.', ({ position }) =>
      Number(position ?? -1),
    );
    // One that was overtaken leaves the work to another process; one that failed tries again.
    perCopy('at_work', '1 while this process publishes.', ({ waiting }) =>
      Number(waiting === null),
    );
    perCopy('failed', '1 while this process cannot publish.', ({ waiting }) =>
      Number(waiting === 'failed'),
    );
  }

  gauge(name: string, help: string, value: () => number): void {
    new Gauge({
      name: `vmux_session_service_${name}`,
      help,
      registers: [this.registry],
      collect() {
        this.set(value());
      },
    });
  }
}
