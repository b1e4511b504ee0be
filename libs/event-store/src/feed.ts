import type { ClientHttp2Session } from 'node:http2';
import { StreamsService } from '@eventstore/db-client/generated/streams_grpc_pb';
import type { ReadReq } from '@eventstore/db-client/generated/streams_pb';
import { Call } from './call';
import type { Connection } from './connection';
import { unavailable } from './faults';
import { type ReadItem, readFrame, readItem } from './read-messages';

const MAX_WAITING_ITEMS = 1024;
const MAX_WAITING_BYTES = 1024 * 1024;

/**
 * The messages of one read, handed over in batches: waiting for every event by itself costs more than
 * the event. Beyond a bound nothing more is taken from the connection until the consumer comes back.
 */
export class Feed {
  private readonly call: Call;
  private items: ReadItem[] = [];
  private bytes = 0;
  private ended = false;
  private fault: unknown;
  private wake: (() => void) | undefined;

  static async open(connection: Connection, request: ReadReq): Promise<Feed> {
    return new Feed(await connection.session(), connection, request);
  }

  private constructor(
    readonly session: ClientHttp2Session,
    connection: Connection,
    request: ReadReq,
  ) {
    this.call = new Call(session, connection.headers(StreamsService.read.path), {
      messages: (messages) => this.took(messages),
      ended: (cause) => this.end(cause),
    });
    this.call.sendLast(readFrame(request));
  }

  /** What has arrived, at least one item; undefined at the end. Throws what the call failed with. */
  async next(timeoutMs?: number): Promise<readonly ReadItem[] | undefined> {
    while (this.items.length === 0) {
      if (this.fault !== undefined) throw this.fault;
      if (this.ended) return undefined;
      if (this.call.isPaused) this.call.resume();
      await this.something(timeoutMs);
    }
    const batch = this.items;
    this.items = [];
    this.bytes = 0;
    return batch;
  }

  cancel(): void {
    this.end(undefined);
    this.call.cancel();
  }

  private async something(timeoutMs: number | undefined): Promise<void> {
    const late = () => {
      this.end(unavailable(`nothing came for ${timeoutMs} ms`));
      this.call.cancel();
    };
    const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
    await new Promise<void>((resolve) => {
      this.wake = resolve;
    });
    clearTimeout(timer);
  }

  private took(messages: readonly Buffer[]): void {
    for (const message of messages) {
      this.items.push(readItem(message));
      this.bytes += message.length;
    }
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
