import type { IncomingMessage } from 'node:http';
import type { WebSocket } from 'ws';
import { ConnectionFailed, errorFrom } from './errors';
import type { CallOptions, Vmux } from './vmux';

const maxErrorBytes = 64 * 1024;
const openWithinMs = 60_000;

/** A WebSocket to the gateway that is open, and paused until `resume`; a refusal is the error that the API gave. */
export async function openSocket(
  vmux: Vmux,
  path: string,
  query: Readonly<Record<string, string | number | undefined>>,
  { signal }: CallOptions = {},
): Promise<WebSocket> {
  signal?.throwIfAborted();
  const { WebSocket: Socket } = await import('ws');
  const { url, apiKey } = vmux.credentials;
  const target = new URL(`${url}${path}`);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) target.searchParams.set(name, String(value));
  target.protocol = target.protocol === 'https:' ? 'wss:' : 'ws:';
  const socket = new Socket(target, {
    headers: { authorization: `Bearer ${apiKey}` },
    handshakeTimeout: openWithinMs,
    maxPayload: 4 * 1024 * 1024,
    perMessageDeflate: false,
  });
  return new Promise((resolve, reject) => {
    const giveUp = () => {
      socket.terminate();
      reject(signal?.reason);
    };
    const settle = () => signal?.removeEventListener('abort', giveUp);
    signal?.addEventListener('abort', giveUp, { once: true });
    socket.once('open', () => {
      // What comes with the answer waits until somebody listens.
      socket.pause();
      settle();
      resolve(socket);
    });
    socket.on('error', (fault) => {
      settle();
      reject(new ConnectionFailed(url, fault));
    });
    socket.once('unexpected-response', (_request, response: IncomingMessage) => {
      settle();
      bodyOf(response).then((body) => reject(errorFrom(body, response.statusCode ?? 0)), reject);
      response.once('close', () => socket.terminate());
    });
  });
}

async function bodyOf(response: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const piece of response) {
    text += String(piece);
    if (text.length > maxErrorBytes) break;
  }
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
