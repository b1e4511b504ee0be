import type { ClientHttp2Session } from 'node:http2';
import { StreamsService } from '@eventstore/db-client/generated/streams_grpc_pb';
import { type AppendBody, appendError, appendFrame, appendResponse } from './append-messages';
import { Call } from './call';
import type { Connection } from './connection';
import { type Fault, faultOf, unavailable } from './faults';
import type { Appended } from './port';

interface Pending {
  readonly body: AppendBody;
  readonly resolve: (appended: Appended) => void;
  readonly reject: (fault: Fault) => void;
}

/** One BatchAppend call with the appends that it has not answered. */
interface Line {
  readonly session: ClientHttp2Session;
  readonly call: Call;
  readonly pending: Map<number, Pending>;
  open: boolean;
}

/**
 * Appends over one long-lived BatchAppend call, in the order in which they were asked for, many at a
 * time. A line that breaks fails its own appends and nobody else's; the next append opens another.
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
      const withinMs = Math.max(1, deadlineMs - Date.now());
      const timer = setTimeout(() => {
        line.pending.get(correlation)?.reject(lost('no answer in time'));
        // A server that owes an answer may be gone without a word: the others look elsewhere too.
        line.call.cancel();
      }, withinMs);
      line.pending.set(correlation, { body, resolve: settle(resolve), reject: settle(reject) });
      line.call.send(appendFrame(body, correlation, withinMs));
    });
  }

  close(): void {
    this.line?.then(
      ({ call }) => call.cancel(),
      () => undefined,
    );
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
    const session = await this.connection.session();
    const headers = this.connection.headers(StreamsService.batchAppend.path);
    const call = new Call(session, headers, {
      messages: (messages) => {
        for (const message of messages) answer(line, message);
      },
      ended: (cause) => this.ended(line, cause ?? unavailable('the server ended the call')),
    });
    const line: Line = { session, call, pending: new Map(), open: true };
    return line;
  }

  private ended(line: Line, cause: unknown): void {
    line.open = false;
    this.line = undefined;
    const fault = faultOf(cause, '');
    void this.connection.failed(line.session, fault.retry ? fault.leader : undefined);
    for (const pending of [...line.pending.values()]) {
      pending.reject(faultOf(cause, pending.body.stream));
    }
  }
}

function answer(line: Line, message: Buffer): void {
  const response = appendResponse(message);
  const pending = line.pending.get(response.correlation);
  if (!pending) return;
  if ('appended' in response) pending.resolve(response.appended);
  else pending.reject(refusal(response.error, pending.body));
}

const lost = (reason: string): Fault => ({ retry: true, error: unavailable(reason) });

function refusal(encoded: Buffer, body: AppendBody): Fault {
  const error = appendError(encoded, body);
  return error.name === 'StoreUnavailable'
    ? { retry: true, error: unavailable(error.message, error) }
    : { retry: false, error };
}
