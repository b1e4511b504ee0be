import { request } from 'node:http';
import type { SeededRandom } from '@vmux/testing';

export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the checker judges what an answer holds
  readonly json: any;
}

/** A client that does what the documentation says: repeats with the same key until it is answered. */
export class PatientClient {
  requests = 0;
  failures = 0;
  failedCreations = 0;
  /** What is being asked, and the last answer that was none. */
  readonly pending = new Map<number, string>();
  private asked = 0;

  constructor(
    readonly gateways: readonly string[],
    readonly key: string,
    private readonly random: SeededRandom,
  ) {}

  /** The first answer that is one: nothing below 500, whatever gateway gave it. */
  async call(method: string, path: string, body?: unknown, key?: string): Promise<Answer> {
    const number = this.asked++;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1_000)) {
      try {
        const answer = await this.once(method, path, body, key);
        this.pending.set(
          number,
          `${method} ${path}: ${answer.status} ${JSON.stringify(answer.json)}`,
        );
        if (answer.status < 500 && answer.status !== 429) {
          this.pending.delete(number);
          return answer;
        }
      } catch (fault) {
        if (!isConnectionFault(fault)) throw fault;
        this.pending.set(number, `${method} ${path}: ${fault}`);
      }
      this.failures += 1;
      await new Promise((done) => setTimeout(done, pauseMs));
    }
  }

  /** A session that runs. One whose sandbox could not be made, and that has failed for it, is asked for anew. */
  async create(body: object): Promise<string> {
    for (;;) {
      const { status, json } = await this.call('POST', '/v1/sessions', body, this.random.uuid());
      if (status !== 201) throw new Error(`create: ${status} ${JSON.stringify(json)}`);
      for (;;) {
        const { json: info } = await this.call('GET', `/v1/sessions/${json.id}`);
        if (info.status === 'running') return json.id;
        if (info.status === 'failed') break;
        await new Promise((done) => setTimeout(done, 100));
      }
      await this.call('DELETE', `/v1/sessions/${json.id}?force=true`, undefined, json.id);
      this.failedCreations += 1;
    }
  }

  /** Bytes, again and again until they are answered or nobody wants them any more. */
  async write(
    path: string,
    bytes: Uint8Array<ArrayBuffer>,
    isVain: () => boolean,
  ): Promise<Answer | null> {
    for (let pauseMs = 50; !isVain(); pauseMs = Math.min(pauseMs * 2, 1_000)) {
      try {
        const answer = await this.send('POST', path, bytes, {
          'content-type': 'application/octet-stream',
        });
        if (answer.status < 500 && answer.status !== 429) return answer;
      } catch (fault) {
        if (!isConnectionFault(fault)) throw fault;
      }
      this.failures += 1;
      await new Promise((done) => setTimeout(done, pauseMs));
    }
    return null;
  }

  /** The same client, where it asks one gateway alone. */
  only(gateway: string): PatientClient {
    return new PatientClient([gateway], this.key, this.random);
  }

  anyGateway(): string {
    return this.random.pick(this.gateways);
  }

  async once(method: string, path: string, body?: unknown, key?: string): Promise<Answer> {
    return this.send(method, path, body === undefined ? undefined : JSON.stringify(body), {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(key === undefined ? {} : { 'idempotency-key': key }),
    });
  }

  private async send(
    method: string,
    path: string,
    body: string | Uint8Array<ArrayBuffer> | undefined,
    headers: Readonly<Record<string, string>>,
  ): Promise<Answer> {
    this.requests += 1;
    const response = await fetch(`${this.anyGateway()}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key}`, ...headers },
      body,
      signal: AbortSignal.timeout(20_000),
    });
    const text = await response.text();
    return { status: response.status, json: text.startsWith('{') ? JSON.parse(text) : text };
  }

  /** Raw bytes from an offset; `complete` says that the answer came to its own end. */
  read(
    path: string,
    maxBytes = Number.POSITIVE_INFINITY,
  ): Promise<{ bytes: Buffer; complete: boolean; status: number }> {
    this.requests += 1;
    return new Promise((resolve) => {
      const pieces: Buffer[] = [];
      let size = 0;
      let status = 0;
      const done = (complete: boolean) =>
        resolve({ bytes: Buffer.concat(pieces), complete, status });
      const call = request(
        `${this.anyGateway()}${path}`,
        { headers: { authorization: `Bearer ${this.key}` } },
        (response) => {
          status = response.statusCode ?? 0;
          response.on('data', (piece: Buffer) => {
            pieces.push(piece);
            size += piece.length;
            if (size < maxBytes) return;
            response.destroy();
            done(false);
          });
          response.on('end', () => done(response.complete && status === 200));
          response.on('error', () => done(false));
        },
      );
      // A frozen gateway says nothing at all.
      call.setTimeout(8_000, () => call.destroy());
      call.on('error', () => done(false));
      call.on('close', () => done(false));
      call.end();
    });
  }
}

const isConnectionFault = (fault: unknown): boolean =>
  fault instanceof TypeError ||
  (fault instanceof Error && ['TimeoutError', 'AbortError', 'SyntaxError'].includes(fault.name));
