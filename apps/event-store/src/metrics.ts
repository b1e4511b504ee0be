import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Group } from './storage/committer';

export interface Gauges {
  openCalls(): number;
  connections(): number;
  subscriptions(): number;
  bufferedBytes(): number;
  queuedBytes(): number;
  walBytes(): number;
}

export class Metrics {
  private readonly registry = new Registry();
  private readonly groups = new Counter({
    name: 'event_store_groups_total',
    help: 'Groups committed',
    registers: [this.registry],
  });
  private readonly writes = new Counter({
    name: 'event_store_writes_total',
    help: 'Appends and deletes answered, refused ones included',
    registers: [this.registry],
  });
  private readonly events = new Counter({
    name: 'event_store_events_total',
    help: 'Events made durable',
    registers: [this.registry],
  });
  private readonly scavenged = new Counter({
    name: 'event_store_scavenged_events_total',
    help: 'Events removed because their stream no longer shows them',
    registers: [this.registry],
  });
  private readonly commitSeconds = new Histogram({
    name: 'event_store_commit_seconds',
    help: 'Time from the beginning of a group to its acknowledgement',
    buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1],
    registers: [this.registry],
  });
  readonly failedGroups = new Counter({
    name: 'event_store_failed_groups_total',
    help: 'Groups that could not be stored, for lack of space or otherwise',
    registers: [this.registry],
  });

  constructor(gauges: Gauges) {
    collectDefaultMetrics({ register: this.registry });
    const gauge = (name: string, help: string, read: () => number) =>
      new Gauge({
        name: `event_store_${name}`,
        help,
        registers: [this.registry],
        collect() {
          this.set(read());
        },
      });
    gauge('open_calls', 'gRPC calls open', gauges.openCalls);
    gauge('connections', 'Connections open', gauges.connections);
    gauge('subscriptions', 'Subscriptions open', gauges.subscriptions);
    gauge('send_buffer_bytes', 'Bytes that clients have not yet taken', gauges.bufferedBytes);
    gauge('queued_bytes', 'Bytes waiting to be committed', gauges.queuedBytes);
    gauge('wal_bytes', 'Size of the write-ahead log', gauges.walBytes);
  }

  committed(group: Group): void {
    this.groups.inc();
    this.writes.inc(group.writes);
    this.events.inc(group.events);
    this.commitSeconds.observe(group.seconds);
  }

  removed(count: number): void {
    this.scavenged.inc(count);
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  text(): Promise<string> {
    return this.registry.metrics();
  }
}
