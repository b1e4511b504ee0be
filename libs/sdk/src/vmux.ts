import { randomUUID } from 'node:crypto';
import { ConnectionFailed, errorFrom, VmuxError } from './errors';
import { pause, pauseBefore } from './pause';
import { type SseMessage, sseMessages } from './sse';
import { type UploadOptions, upload } from './upload';

export interface VmuxSettings {
  /** Of the gateway, such as `http://127.0.0.1:7878`. */
  readonly url: string;
  readonly apiKey: string;
  /** How long a request is tried again while nobody answers or the service is not there; 30 s without it. */
  readonly retryForMs?: number;
}

/** What every call takes. */
export interface CallOptions {
  /** Stops waiting. What was asked for goes on. */
  readonly signal?: AbortSignal;
}

/** What every call that changes something takes. */
export interface ChangeOptions extends CallOptions {
  /** Repeat a call with the same key and it happens once; made up for each call without it. */
  readonly idempotencyKey?: string;
}

type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** Bytes that are sent as they come. */
export type ByteSource = AsyncIterable<Uint8Array>;

export interface Request extends ChangeOptions {
  readonly query?: Query;
  /** JSON, bytes, bytes as they come, or what makes them: the last can be sent again by itself. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Nobody offers the provider: that changes within seconds of a start, or not at all. */
const noPlacementForMs = 5_000;

/**
 * A connection to one gateway as one caller. Holds no socket and needs no closing.
 *
 * Every change carries an Idempotency-Key and is sent again under the same key when no answer came or
 * the service was not there: it happens once, however often it was sent.
 */
export class Vmux {
  readonly url: string;
  readonly retryForMs: number;
  private readonly apiKey: string;

  constructor({ url, apiKey, retryForMs = 30_000 }: VmuxSettings) {
    if (!/^https?:\/\/\S+$/.test(url))
      throw new VmuxError('invalid_url', `not a URL of a gateway: ${url}`, 'give http(s)://host');
    this.url = url.replace(/\/+$/, '');
    this.apiKey = apiKey;
    this.retryForMs = retryForMs;
  }

  /** From VMUX_URL and VMUX_API_KEY. */
  static fromEnvironment(env: NodeJS.ProcessEnv = process.env): Vmux {
    const { VMUX_URL: url, VMUX_API_KEY: apiKey } = env;
    if (!url || !apiKey)
      throw new VmuxError(
        'not_configured',
        'there is no gateway to talk to',
        'set VMUX_URL and VMUX_API_KEY, or pass a Vmux',
      );
    return new Vmux({ url, apiKey });
  }

  /** Whether a gateway answers at the URL, asked once. */
  async isUp(signal?: AbortSignal): Promise<boolean> {
    try {
      await (await this.fetch('GET', '/health', { signal })).body?.cancel();
      return true;
    } catch (fault) {
      if (fault instanceof ConnectionFailed) return false;
      throw fault;
    }
  }

  /**
   * Uploads a gzipped tar for `Sandbox.create({ bundle })`; resolves with its digest. When the connection
   * breaks it goes on with what has come, as long as something comes within `retryForMs`.
   */
  uploadBundle(bytes: Uint8Array, options: UploadOptions = {}): Promise<string> {
    return upload(this, bytes, options);
  }

  /** One call of the API, answered with JSON. */
  async call<T>(method: string, path: string, request: Request = {}): Promise<T> {
    const response = await this.send(method, path, request);
    try {
      return (response.status === 204 ? undefined : await response.json()) as T;
    } catch (fault) {
      request.signal?.throwIfAborted();
      // The change may have happened: the same key finds its answer.
      if (method === 'GET') throw new ConnectionFailed(this.url, fault);
      throw new VmuxError('outcome_unknown', 'the answer was cut', 'read the state', 0, true);
    }
  }

  /** Bytes of an answer, as they come. An answer that is cut is a fault, never an end. */
  async *bytes(path: string, request: Request = {}): AsyncGenerator<Uint8Array> {
    const leave = new AbortController();
    const signal = request.signal ? AbortSignal.any([request.signal, leave.signal]) : leave.signal;
    const response = await this.send('GET', path, { ...request, signal });
    try {
      if (response.body) yield* response.body;
    } catch (fault) {
      request.signal?.throwIfAborted();
      throw new ConnectionFailed(this.url, fault);
    } finally {
      leave.abort();
    }
  }

  /** One attempt at a call that its caller repeats, or that cannot be repeated. */
  async once<T>(method: string, path: string, request: Request = {}): Promise<T> {
    const response = await this.fetch(method, path, request);
    if (!response.ok) throw await this.errorOf(response);
    try {
      return (response.status === 204 ? undefined : await response.json()) as T;
    } catch (fault) {
      request.signal?.throwIfAborted();
      throw new ConnectionFailed(this.url, fault);
    }
  }

  /** What a WebSocket to this gateway is opened with. */
  get credentials(): { readonly url: string; readonly apiKey: string } {
    return { url: this.url, apiKey: this.apiKey };
  }

  /** Server-sent events of one connection. Ends when the connection does, whatever the reason. */
  async *events(
    path: string,
    request: Request = {},
    onOpen: () => void = () => undefined,
  ): AsyncGenerator<SseMessage> {
    const leave = new AbortController();
    const signal = request.signal ? AbortSignal.any([request.signal, leave.signal]) : leave.signal;
    const headers = { ...request.headers, accept: 'text/event-stream' };
    const response = await this.fetch('GET', path, { ...request, headers, signal });
    if (!response.ok) throw await this.errorOf(response);
    onOpen();
    try {
      if (response.body) yield* sseMessages(response.body);
    } catch (fault) {
      request.signal?.throwIfAborted();
      throw new ConnectionFailed(this.url, fault);
    } finally {
      leave.abort();
    }
  }

  private async send(method: string, path: string, request: Request): Promise<Response> {
    const key = request.idempotencyKey ?? randomUUID();
    const headers = {
      ...request.headers,
      ...(method === 'GET' ? {} : { 'idempotency-key': key }),
    };
    const began = Date.now();
    for (let attempt = 0; ; attempt += 1) {
      const fault = await this.attempt(method, path, { ...request, headers });
      if (fault instanceof Response) return fault;
      const patienceMs =
        fault.code === 'no_placement'
          ? Math.min(this.retryForMs, noPlacementForMs)
          : this.retryForMs;
      if (!fault.retryable || Date.now() - began >= patienceMs) throw fault;
      await pause(pauseBefore(attempt), request.signal);
    }
  }

  private async attempt(method: string, path: string, request: Request) {
    try {
      const response = await this.fetch(method, path, request);
      return response.ok ? response : await this.errorOf(response);
    } catch (fault) {
      if (fault instanceof ConnectionFailed) return fault;
      throw fault;
    }
  }

  private async errorOf(response: Response): Promise<VmuxError> {
    const body: unknown = await response.json().catch(() => null);
    return errorFrom(body, response.status);
  }

  private async fetch(method: string, path: string, request: Request): Promise<Response> {
    const { query = {}, body, headers, signal } = request;
    const url = new URL(`${this.url}${path}`);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const source: unknown = typeof body === 'function' ? body() : body;
    const stream = isByteSource(source) ? ReadableStream.from(source) : null;
    const bytes = body instanceof Uint8Array ? (body as Uint8Array<ArrayBuffer>) : null;
    const type = stream || bytes ? 'application/octet-stream' : 'application/json';
    try {
      return await fetch(url, {
        method,
        headers: {
          authorization: `Bearer ${this.apiKey}`,
          ...(body === undefined ? {} : { 'content-type': type }),
          ...headers,
        },
        body: stream ?? bytes ?? (body === undefined ? undefined : JSON.stringify(body)),
        ...(stream ? { duplex: 'half' as const } : {}),
        signal,
        redirect: 'error',
      });
    } catch (fault) {
      signal?.throwIfAborted();
      throw new ConnectionFailed(this.url, fault);
    }
  }
}

const isByteSource = (body: unknown): body is ByteSource =>
  typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
