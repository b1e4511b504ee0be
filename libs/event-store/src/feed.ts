import { StreamsService } from '@eventstore/db-client/generated/streams_grpc_pb';
import type { ReadReq } from '@eventstore/db-client/generated/streams_pb';
import type { Client, ClientReadableStream } from '@grpc/grpc-js';
import type { Connection } from './connection';
import { unavailable } from './faults';
import { type ReadItem, readItem } from './read-messages';

const MAX_WAITING_ITEMS = 512;
const MAX_WAITING_BYTES = 1024 * 1024;

/**
 * The messages of one read, handed over in batches: waiting for every event by itself costs more than
 * the event. Beyond a bound nothing more is taken from the connection until the consumer comes back.
 */
export class Feed {
  private items: ReadItem[] = [];
  private bytes = 0;
  private ended = false;
  private fault: unknown;
  private wake: (() => void) | undefined;

  static async open(connection: Connection, request: ReadReq): Promise<Feed> {
    const client = await connection.client();
    const call = client.makeServerStreamRequest(
      StreamsService.read.path,
      StreamsService.read.requestSerialize,
      readItem,
      request,
      connection.metadata(),
      {},
    );
    return new Feed(client, call);
  }

  private constructor(
    readonly client: Client,
    private readonly call: ClientReadableStream<ReadItem>,
  ) {
    call.on('data', (item: ReadItem) => this.took(item));
    call.on('end', () => this.end(undefined));
    call.on('error', (cause) => this.end(cause));
  }

  /** What has arrived, at least one item; undefined at the end. Throws what the call failed with. */
  async next(timeoutMs?: number): Promise<readonly ReadItem[] | undefined> {
    while (this.items.length === 0) {
      if (this.fault !== undefined) throw this.fault;
      if (this.ended) return undefined;
      if (this.call.isPaused()) this.call.resume();
      await this.something(timeoutMs);
    }
    const batch = this.items;
    this.items = [];
    this.bytes = 0;
    return batch;
  }

  cancel(): void {
    this.call.cancel();
    this.end(undefined);
  }

  private async something(timeoutMs: number | undefined): Promise<void> {
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => {
            this.call.cancel();
            this.end(unavailable(`nothing came for ${timeoutMs} ms`));
          }, timeoutMs);
    await new Promise<void>((resolve) => {
      this.wake = resolve;
    });
    clearTimeout(timer);
  }

  private took(item: ReadItem): void {
    this.items.push(item);
    if (item.kind === 'event') this.bytes += item.bytes;
    if (this.items.length >= MAX_WAITING_ITEMS || this.bytes >= MAX_WAITING_BYTES) {
      this.call.pause();
    }
    this.woken();
  }

  private end(cause: unknown): void {
    if (this.ended) return;
    this.ended = true;
    this.fault = cause;
    this.woken();
  }

  private woken(): void {
    const { wake } = this;
    this.wake = undefined;
    wake?.();
  }
}
