import type { IncomingMessage, ServerResponse } from 'node:http';

/**
 * Cuts a request whose body does not arrive in time. Node's own bound knows no exceptions, and an upload
 * into a sandbox takes as long as it takes; whatever else has a body is small.
 */
export function expectBodyWithin(
  ms: number,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  if (request.complete) return;
  const timer = setTimeout(() => {
    if (request.complete || request.destroyed) return;
    if (!response.headersSent) {
      response.writeHead(408, { connection: 'close' });
      response.end();
    }
    request.destroy();
  }, ms);
  timer.unref();
  const settle = () => clearTimeout(timer);
  request.once('end', settle);
  request.once('close', settle);
}
