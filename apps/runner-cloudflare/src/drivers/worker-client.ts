import type { Duplex } from 'node:stream';
import { DriverRefused, DriverUnavailable, SandboxGone } from '@vmux/runner-kit';
import WebSocket from 'ws';
import { WebSocketPipe } from '../../../../workers/cloudflare/container/web-socket-pipe';
import { sign } from '../../../../workers/cloudflare/src/signature';
import type { RefusalCode } from '../../../../workers/cloudflare/src/wire';

export interface WorkerAddress {
  readonly url: string;
  readonly key: string;
  readonly runnerId: string;
}

export interface Ask {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** A create waits for Cloudflare to place a container and for its image; nothing else takes long. */
const openWithinMs = 30_000;
const keptBytes = 16 * 1024;

/** Signed requests to the Worker. Every fault that leaves here is one of the driver port's three. */
export class WorkerClient {
  constructor(private readonly address: WorkerAddress) {}

  async ask<T>({ method, path, body, signal }: Ask): Promise<T> {
    const bytes = Buffer.from(body === undefined ? '' : JSON.stringify(body));
    const headers = await this.headers(method, path, bytes);
    let response: Response;
    try {
      response = await fetch(new URL(path, this.address.url), {
        method,
        headers,
        ...(body === undefined ? {} : { body: bytes }),
        signal,
        redirect: 'error',
      });
    } catch (fault) {
      signal?.throwIfAborted();
      throw new DriverUnavailable(`the Worker does not answer (${messageOf(fault)})`, {
        cause: fault,
      });
    }
    const text = await response.text().catch((fault) => {
      signal?.throwIfAborted();
      throw new DriverUnavailable('the Worker’s answer broke off', { cause: fault });
    });
    if (!response.ok) throw refusalOf(response.status, text);
    return JSON.parse(text) as T;
  }

  async open(
    path: string,
    onNotice: (text: string) => void,
    signal?: AbortSignal,
  ): Promise<Duplex> {
    signal?.throwIfAborted();
    const url = new URL(path, this.address.url);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const headers = await this.headers('GET', path, Buffer.alloc(0));
    const socket = new WebSocket(url, {
      headers,
      perMessageDeflate: false,
      handshakeTimeout: openWithinMs,
      followRedirects: false,
    });
    const pipe = new WebSocketPipe(socket, onNotice);
    const abort = () => socket.terminate();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once('open', resolve);
        pipe.once('error', reject);
        socket.once('unexpected-response', (_request, response) => {
          let text = '';
          response.on('data', (piece) => {
            text = `${text}${piece}`.slice(0, keptBytes);
          });
          response.once('close', () => reject(refusalOf(response.statusCode ?? 0, text)));
        });
      });
      return pipe;
    } catch (fault) {
      pipe.destroy();
      signal?.throwIfAborted();
      if (fault instanceof SandboxGone || fault instanceof DriverRefused) throw fault;
      if (fault instanceof DriverUnavailable) throw fault;
      throw new DriverUnavailable(`the pipe does not open (${messageOf(fault)})`, { cause: fault });
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  private headers(method: string, target: string, body: Buffer): Promise<Record<string, string>> {
    const { key, runnerId: runner } = this.address;
    return sign(key, { method, target, runner, body });
  }
}

/** What each refusal of the Worker means for the caller: retry, refuse or lost. */
function refusalOf(status: number, text: string): Error {
  const { code, message } = parsed(text);
  switch (code) {
    case 'fenced':
    case 'sandbox_lost':
      return new SandboxGone(message);
    case 'exists':
      return new DriverRefused('exists', message);
    case 'invalid':
    case 'stale_epoch':
    case 'not_found':
      return new DriverRefused('invalid', message);
    case 'unsupported':
      return new DriverRefused('unsupported', message);
    case 'closed':
    case 'unsigned':
    case 'expired':
    case 'replayed':
    case 'unavailable':
      return new DriverUnavailable(message);
    case undefined:
      return new DriverUnavailable(`the Worker answered ${status}`);
  }
}

function parsed(text: string): { readonly code?: RefusalCode; readonly message: string } {
  try {
    const { code, message } = JSON.parse(text);
    return { code, message: String(message) };
  } catch {
    return { message: text };
  }
}

const messageOf = (fault: unknown): string => {
  if (!(fault instanceof Error)) return String(fault);
  return fault.cause instanceof Error ? fault.cause.message : fault.message;
};
