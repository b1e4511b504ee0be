import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Duplex, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { OpenedStream } from '@vmux/tunnel';
import { type Forwarding, requestHeaders, responseHeaders } from './preview-headers';
import type { PreviewName } from './preview-names';
import { TunnelSocket } from './tunnel-socket';

export interface Passage {
  readonly request: IncomingMessage;
  readonly name: PreviewName;
  readonly scheme: 'http' | 'https';
  /** What is asked of the app: path and query. */
  readonly url: string;
  readonly signal: AbortSignal;
  dial(): Promise<OpenedStream>;
  /** Before anything more is read of what the client sends. */
  begins?(): void;
}

/** The app answered with something that is no HTTP, or not all of it. */
export class BadAnswer extends Error {
  readonly code = 'bad_answer';
  constructor(detail: string, options?: ErrorOptions) {
    super(`the app's answer cannot be used: ${detail}`, options);
    this.name = 'BadAnswer';
  }
}

/** The app took the request and did not begin to answer. */
export class NoAnswer extends Error {
  readonly code = 'no_answer';
  constructor(ms: number) {
    super(`the app did not begin to answer within ${ms / 1000} s`);
    this.name = 'NoAnswer';
  }
}

/** Whoever asked has left before the app was reached: nobody is told anything. */
export class VisitorGone extends Error {
  constructor() {
    super('the visitor has left');
    this.name = 'VisitorGone';
  }
}

export const MAX_HEAD_BYTES = 64 * 1024;
const HEAD_WITHIN_MS = 300_000;

/** Carries requests to apps: what comes is passed on as it comes, in both directions. */
export class PreviewProxy {
  constructor(private readonly headWithinMs = HEAD_WITHIN_MS) {}

  /** Throws while nothing is sent to the client yet; afterwards a fault cuts the connection. */
  async pass(passage: Passage, response: ServerResponse): Promise<void> {
    const { request, name } = passage;
    const call = await this.call(passage, null);
    const leave = () => call.destroy();
    const cut = () => {
      call.destroy();
      response.destroy();
    };
    response.once('close', leave);
    passage.signal.addEventListener('abort', cut, { once: true });
    try {
      send(request, call);
      const answer = await this.head(call);
      if ('socket' in answer) {
        answer.socket.destroy();
        throw new BadAnswer('it changed to another protocol unasked');
      }
      begin(response, answer.message, name);
      // A body without a length would end well when its connection breaks.
      call.once('error', () => response.destroy());
      await finish(answer.message, response);
    } finally {
      response.off('close', leave);
      passage.signal.removeEventListener('abort', cut);
      call.destroy();
    }
  }

  /** As `pass`: a fault before anything was sent is thrown, and the socket is left as it is. */
  async upgrade(passage: Passage, socket: Duplex, head: Buffer, protocol: string): Promise<void> {
    const call = await this.call(passage, protocol);
    const cut = () => {
      call.destroy();
      socket.destroy();
    };
    socket.once('close', cut);
    passage.signal.addEventListener('abort', cut, { once: true });
    call.end();
    try {
      const answer = await this.head(call);
      call.on('error', cut);
      await this.exchange(passage, answer, socket, head, protocol).catch(cut);
    } finally {
      passage.signal.removeEventListener('abort', cut);
      socket.off('close', cut);
      call.destroy();
    }
  }

  private async exchange(
    { name, begins }: Passage,
    answer: Head,
    socket: Duplex,
    head: Buffer,
    protocol: string,
  ): Promise<void> {
    begins?.();
    const { message } = answer;
    const headers = responseHeaders(message.rawHeaders, { name });
    if (!('socket' in answer)) {
      socket.write(headOf(message.statusCode ?? 502, headers, ['Connection', 'close']));
      return pipeline(message, socket);
    }
    socket.write(headOf(101, headers, ['Connection', 'Upgrade', 'Upgrade', protocol]));
    if (head.length > 0) answer.socket.write(head);
    if (answer.head.length > 0) socket.write(answer.head);
    await Promise.all([pipeline(socket, answer.socket), pipeline(answer.socket, socket)]);
  }

  private async call(passage: Passage, upgrade: string | null) {
    const { request, name, scheme, url } = passage;
    const chunked = request.headers['transfer-encoding'] !== undefined;
    const clientIp = request.socket.remoteAddress ?? '';
    const about: Forwarding = { name, scheme, clientIp, chunked, upgrade };
    const tunnel = await passage.dial();
    if (passage.signal.aborted) {
      tunnel.cancel();
      throw new VisitorGone();
    }
    const socket = new TunnelSocket(tunnel);
    return httpRequest({
      method: request.method,
      path: url,
      headers: requestHeaders(request.rawHeaders, about),
      maxHeaderSize: MAX_HEAD_BYTES,
      insecureHTTPParser: false,
      setHost: false,
      createConnection: () => socket,
    });
  }

  private head(call: ReturnType<typeof httpRequest>): Promise<Head> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => call.destroy(new NoAnswer(this.headWithinMs)),
        this.headWithinMs,
      );
      const settle = (act: () => void) => {
        clearTimeout(timer);
        act();
      };
      call.once('response', (message) => settle(() => resolve({ message })));
      call.once('upgrade', (message, socket, head) =>
        settle(() => resolve({ message, socket, head })),
      );
      call.on('error', (fault) => settle(() => reject(understood(fault))));
      call.once('close', () => settle(() => reject(new BadAnswer('it closed the connection'))));
    });
  }
}

/** A body that breaks off is cut for the app too. What it has not read when it is done is read off. */
function send(request: IncomingMessage, call: Writable): void {
  request.pipe(call);
  request.once('close', () => {
    if (!request.complete) call.destroy();
  });
  call.once('close', () => {
    request.unpipe(call);
    request.resume();
  });
}

type Head =
  | { readonly message: IncomingMessage }
  | { readonly message: IncomingMessage; readonly socket: Duplex; readonly head: Buffer };

/** Faults of the parser and of the connection are the app's; those of the tunnel stay what they are. */
function understood(fault: NodeJS.ErrnoException): Error {
  if (fault.code?.startsWith('HPE_')) return new BadAnswer(fault.code, { cause: fault });
  if (fault.code === 'ECONNRESET')
    return new BadAnswer('it closed the connection', { cause: fault });
  return fault;
}

function begin(response: ServerResponse, message: IncomingMessage, name: PreviewName): void {
  const codings = message.headers['transfer-encoding'];
  if (codings !== undefined && codings.trim().toLowerCase() !== 'chunked')
    throw new BadAnswer('its transfer coding is not known');
  try {
    response.writeHead(message.statusCode ?? 502, responseHeaders(message.rawHeaders, { name }));
  } catch (cause) {
    throw new BadAnswer('its head', { cause });
  }
  response.flushHeaders();
}

/** An answer that breaks off is cut for the client too: it must not look whole. */
async function finish(message: IncomingMessage, response: ServerResponse): Promise<void> {
  try {
    await pipeline(message, response);
  } catch {
    response.destroy();
  }
}

function headOf(status: number, headers: readonly string[], more: readonly string[]): string {
  const all = [...headers, ...more];
  const lines = all.flatMap((field, at) => (at % 2 === 0 ? [`${field}: ${all[at + 1]}`] : []));
  return [
    `HTTP/1.1 ${status} ${status === 101 ? 'Switching Protocols' : 'Answer'}`,
    ...lines,
    '',
    '',
  ].join('\r\n');
}
