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

interface Line {
  readonly client: Client;
  readonly call: Call;
  readonly pending: Map<number, Pending>;
  open: boolean;
}

/** The transport sends the next message of a call only when the one before has left. */
const MAX_LINES = 16;

const asItIs = (bytes: Buffer): Buffer => bytes;

/**
 * Appends over long-lived BatchAppend calls. Every line keeps its own list of what is unanswered, so that
 * a broken one fails its own appends and nobody else's. Appends to one stream keep their order: while one
 * is unanswered the next takes the same line.
 */
export class Appender {
  private readonly lines = new Set<Line>();
  private readonly lineOfStream = new Map<string, { readonly line: Line; unanswered: number }>();
  private correlation = 0;

  constructor(private readonly connection: Connection) {}

  /** One attempt. Rejects with a `Fault`. */
  async append(body: AppendBody, deadlineMs: number): Promise<Appended> {
    const line = this.choose(body.stream) ?? (await this.another(body.stream));
    return new Promise<Appended>((resolve, reject) => {
      if (!line.open) return reject(lost('the connection ended'));
      const correlation = ++this.correlation;
      const answered = this.hold(body.stream, line);
      const settle =
        <T>(then: (value: T) => void) =>
        (value: T) => {
          clearTimeout(timer);
          line.pending.delete(correlation);
          answered();
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

  close(): void {
    for (const line of this.lines) this.abandon(line);
  }

  /** The line for the stream, undefined when there should be one more. */
  private choose(stream: string): Line | undefined {
    const same = this.lineOfStream.get(stream)?.line;
    if (same?.open) return same;
    let least: Line | undefined;
    for (const line of this.lines) {
      if (line.pending.size === 0) return line;
      if (!least || line.pending.size < least.pending.size) least = line;
    }
    return this.lines.size < MAX_LINES ? undefined : least;
  }

  /** Keeps the stream on the line until the returned function is called. */
  private hold(stream: string, line: Line): () => void {
    const before = this.lineOfStream.get(stream);
    const held = before?.line === line ? before : { line, unanswered: 0 };
    held.unanswered++;
    this.lineOfStream.set(stream, held);
    return () => {
      held.unanswered--;
      if (held.unanswered === 0 && this.lineOfStream.get(stream) === held) {
        this.lineOfStream.delete(stream);
      }
    };
  }

  private async another(stream: string): Promise<Line> {
    let client: Client;
    try {
      client = await this.connection.client();
    } catch (cause) {
      throw faultOf(cause, stream);
    }
    return this.choose(stream) ?? this.open(client);
  }

  private open(client: Client): Line {
    const call: Call = client.makeBidiStreamRequest(
      StreamsService.batchAppend.path,
      asItIs,
      appendResponse,
      this.connection.metadata(),
      {},
    );
    const line: Line = { client, call, pending: new Map(), open: true };
    this.lines.add(line);
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
    this.lines.delete(line);
    const fault = faultOf(cause, '');
    void this.connection.failed(line.client, fault.retry ? fault.leader : undefined);
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
