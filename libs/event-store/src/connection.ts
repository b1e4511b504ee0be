import { discoverEndpoint } from '@eventstore/db-client/dist/Client/discovery';
import { Client, Metadata } from '@grpc/grpc-js';
import { unavailable } from './faults';
import type { Target } from './settings';

// The client allows for events of 16 MiB, which other writers may have stored.
const MAX_MESSAGE_BYTES = 17 * 1024 * 1024;
const FLOW_CONTROL_BYTES = 1024 * 1024;

/**
 * The one connection that everything shares. Whoever sees it fail reports it; the next one who asks gets
 * a new one, to the cluster's leader where there is a cluster.
 */
export class Connection {
  private current: Promise<Client> | undefined;
  private leader: string | undefined;
  private closed = false;

  constructor(private readonly target: Target) {}

  async client(): Promise<Client> {
    if (this.closed) throw unavailable('closed by this process');
    this.current ??= this.open();
    const opening = this.current;
    try {
      return await opening;
    } catch (cause) {
      if (this.current === opening) this.current = undefined;
      throw cause;
    }
  }

  metadata(): Metadata {
    const metadata = new Metadata();
    const { authorization, connectionName, cluster } = this.target;
    if (authorization) metadata.set('authorization', authorization);
    if (connectionName) metadata.set('connection-name', connectionName);
    if (cluster) metadata.set('requires-leader', 'true');
    return metadata;
  }

  /** Someone's call failed: calls that go on are left alone, new ones get a new connection. */
  async failed(client: Client, leader?: string): Promise<void> {
    const current = await this.current?.catch(() => undefined);
    if (current !== client) return;
    this.leader = leader;
    this.current = undefined;
    client.close();
  }

  async close(): Promise<void> {
    this.closed = true;
    const current = await this.current?.catch(() => undefined);
    current?.close();
  }

  private async open(): Promise<Client> {
    const { credentials, keepAliveIntervalMs, keepAliveTimeoutMs } = this.target;
    return new Client(await this.endpoint(), credentials, {
      'grpc.keepalive_time_ms': keepAliveIntervalMs < 0 ? 2 ** 31 - 1 : keepAliveIntervalMs,
      'grpc.keepalive_timeout_ms': keepAliveTimeoutMs < 0 ? 2 ** 31 - 1 : keepAliveTimeoutMs,
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      // A shared subchannel would hand its back-off, a second and more, to the next connection.
      'grpc.use_local_subchannel_pool': 1,
      'grpc.enable_retries': 0,
      // Without it a call gets 64 KiB at a time and then waits for a round trip.
      'grpc-node.flow_control_window': FLOW_CONTROL_BYTES,
      'grpc.service_config_disable_resolution': 1,
    });
  }

  private async endpoint(): Promise<string> {
    const { endpoint, cluster, credentials } = this.target;
    if (this.leader) return this.leader;
    if (endpoint) return endpoint;
    if (!cluster) throw new Error('neither a node nor a cluster is named');
    const { address, port } = await discoverEndpoint(cluster, credentials);
    return `${address}:${port}`;
  }
}

/** Waits between attempts: 20 ms, doubling up to a second. A success starts again from the shortest. */
export class Pause {
  private nextMs = 20;

  reset(): void {
    this.nextMs = 20;
  }

  async wait(signal?: AbortSignal): Promise<void> {
    const waitMs = this.nextMs * (0.75 + Math.random() / 2);
    this.nextMs = Math.min(1000, this.nextMs * 2);
    if (signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, waitMs);
      signal?.addEventListener('abort', done, { once: true });
    });
  }
}
