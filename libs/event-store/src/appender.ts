import { StreamsService } from '@eventstore/db-client/generated/streams_grpc_pb';
import type { Client, ClientDuplexStream } from '@grpc/grpc-js';
import {
  type AppendBody,
  type AppendResponse,
  appendError,
  appendRequest,
  appendResponse,
} from './append-messages';
import type { Connection } from './connection';
import { type Fault, faultOf, unavailable } from './faults';
import type { Appended } from './port';

interface Pending {
  readonly body: AppendBody;
  readonly resolve: (appended: Appended) => void;
  readonly reject: (fault: Fault) => void;
}

type Call = ClientDuplexStream<Buffer, AppendResponse>;
type Line = {
  readonly client: Client;
  readonly call: Call;
  readonly pending: Map<number, Pending>;
  open: boolean;
};

const asItIs = (bytes: Buffer): Buffer => bytes;

/**
 * Appends over one long-lived BatchAppend call, many at a time. Every line keeps its own list of what is
 * unanswered, so that a broken one fails its own appends and nobody else's.
 */
export class Appender {
  private line: Promise<Line> | undefined;
  private correlation = 0;

  constructor(private readonly connection: Connection) {}

  /** One attempt. Rejects with a `Fault`. */
  async append(body: AppendBody, deadlineMs: number): Promise<Appended> {
    const line = await this.openLine(body.stream);
    return new Promise<Appended>((resolve, reject) => {
      if (!line.open) return reject(lost('the connection ended'));
      const correlation = ++this.correlation;
      const settle =
        <T>(then: (value: T) => void) =>
        (value: T) => {
          clearTimeout(timer);
          line.pending.delete(correlation);
          then(value);
        };
      const timer = setTimeout(
        () => {
          line.pending.get(correlation)?.reject(lost('no answer in time'));
          // A server that owes an answer may be gone without a word: the others look elsewhere too.
          this.abandon(line);
        },
        Math.max(1, deadlineMs - Date.now()),
      );
      line.pending.set(correlation, { body, resolve: settle(resolve), reject: settle(reject) });
      line.call.write(appendRequest(body, correlation, deadlineMs));
    });
  }

  async close(): Promise<void> {
    const line = await this.line?.catch(() => undefined);
    if (line) this.abandon(line);
  }

  private async openLine(stream: string): Promise<Line> {
    this.line ??= this.open();
    const opening = this.line;
    try {
      return await opening;
    } catch (cause) {
      if (this.line === opening) this.line = undefined;
      throw faultOf(cause, stream);
    }
  }

  private async open(): Promise<Line> {
    const client = await this.connection.client();
    const call: Call = client.makeBidiStreamRequest(
      StreamsService.batchAppend.path,
      asItIs,
      appendResponse,
      this.connection.metadata(),
      {},
    );
    const line: Line = { client, call, pending: new Map(), open: true };
    call.on('data', (response: AppendResponse) => {
      const pending = line.pending.get(response.correlation);
      if (!pending) return;
      if ('appended' in response) pending.resolve(response.appended);
      else pending.reject(refusal(response.error, pending.body));
    });
    call.on('error', (cause) => this.ended(line, cause));
    call.on('end', () => this.ended(line, unavailable('the server ended the call')));
    return line;
  }

  private ended(line: Line, cause: unknown): void {
    if (!line.open) return;
    line.open = false;
    this.line = undefined;
    const leader = faultOf(cause, '');
    void this.connection.failed(line.client, leader.retry ? leader.leader : undefined);
    for (const pending of [...line.pending.values()]) {
      pending.reject(faultOf(cause, pending.body.stream));
    }
  }

  private abandon(line: Line): void {
    line.call.cancel();
    this.ended(line, unavailable('the connection was given up'));
  }
}

const lost = (reason: string): Fault => ({ retry: true, error: unavailable(reason) });

function refusal(encoded: Buffer, body: AppendBody): Fault {
  const error = appendError(encoded, body);
  return error.name === 'StoreUnavailable'
    ? { retry: true, error: unavailable(error.message, error) }
    : { retry: false, error };
}
