import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: what an answer holds is what the test asserts
  readonly json: any;
  readonly text: string;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface RawLog {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly trailers: NodeJS.Dict<string>;
  readonly bytes: Buffer;
}

export interface SseMessage {
  readonly event: string;
  readonly id: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: what an event holds is what the test asserts
  readonly data: any;
}

/** The REST API as a client sees it. */
export class ApiClient {
  constructor(
    readonly url: string,
    readonly key: string | null,
  ) {}

  withKey(key: string | null): ApiClient {
    return new ApiClient(this.url, key);
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    const isBytes = options.body instanceof Uint8Array;
    const json = isBytes || options.body === undefined ? undefined : JSON.stringify(options.body);
    const type = isBytes ? 'application/octet-stream' : 'application/json';
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        ...this.auth(),
        ...(options.body === undefined ? {} : { 'content-type': type }),
        ...options.headers,
      },
      body: isBytes ? (options.body as Uint8Array<ArrayBuffer>) : json,
      signal: options.signal,
    });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: isJson ? JSON.parse(text) : null,
    };
  }

  get(path: string, headers?: Record<string, string>): Promise<Reply> {
    return this.call('GET', path, { headers });
  }

  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply> {
    return this.call('POST', path, { body, headers });
  }

  /** With trailers, which fetch does not show. */
  raw(path: string, headers: Record<string, string> = {}): Promise<RawLog> {
    return new Promise((resolve, reject) => {
      const call = httpRequest(
        `${this.url}${path}`,
        { headers: { ...this.auth(), ...headers } },
        (response) => {
          const pieces: Buffer[] = [];
          response.on('data', (piece: Buffer) => pieces.push(piece));
          response.on('error', reject);
          response.on('aborted', () => reject(new Error('the answer was cut')));
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              headers: response.headers,
              trailers: response.trailers,
              bytes: Buffer.concat(pieces),
            }),
          );
        },
      );
      call.on('error', reject);
      call.end();
    });
  }

  /** Server-sent events until the stream ends or the consumer leaves. */
  async *events(path: string, options: CallOptions & { method?: string } = {}) {
    const leave = new AbortController();
    const signals = options.signal ? [options.signal, leave.signal] : [leave.signal];
    const response = await fetch(`${this.url}${path}`, {
      method: options.method ?? 'GET',
      headers: {
        ...this.auth(),
        accept: 'text/event-stream',
        ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...options.headers,
      },
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: AbortSignal.any(signals),
    });
    if (response.status !== 200 || !response.body)
      throw new Error(`${response.status} ${await response.text()}`);
    try {
      yield* parsed(response.body);
    } finally {
      leave.abort();
    }
  }

  private auth(): Record<string, string> {
    return this.key === null ? {} : { authorization: `Bearer ${this.key}` };
  }
}

async function* parsed(body: AsyncIterable<Uint8Array>): AsyncGenerator<SseMessage> {
  const decoder = new TextDecoder();
  let waiting = '';
  for await (const piece of body) {
    waiting += decoder.decode(piece, { stream: true });
    for (let end = waiting.indexOf('\n\n'); end >= 0; end = waiting.indexOf('\n\n')) {
      const message = messageOf(waiting.slice(0, end));
      waiting = waiting.slice(end + 2);
      if (message) yield message;
    }
  }
}

function messageOf(block: string): SseMessage | null {
  const fields = new Map<string, string>();
  for (const line of block.split('\n')) {
    const at = line.indexOf(': ');
    if (at > 0) fields.set(line.slice(0, at), line.slice(at + 2));
  }
  const data = fields.get('data');
  if (data === undefined) return null;
  return {
    event: fields.get('event') ?? 'message',
    id: fields.get('id') ?? null,
    data: JSON.parse(data),
  };
}
