import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, ERRORS } from './api-error';
import { bodyOf } from './error.filter';
import { apiErrorOf } from './translate';

/** Where the connection was asked to become something else, and of what it consists. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  readonly url: URL;
  /** What the path's groups matched. */
  readonly path: readonly string[];
}

type Take = (upgrade: Upgrade) => Promise<void>;

/** WebSockets of the API, by path. What a taker throws is answered as any other error. */
export class Upgrades {
  private readonly takers: { readonly path: RegExp; readonly take: Take }[] = [];

  add(path: RegExp, take: Take): void {
    this.takers.push({ path, take });
  }

  handle(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const url = urlOf(request);
    for (const { path, take } of url ? this.takers : []) {
      const found = url && path.exec(url.pathname);
      if (!found) continue;
      take({ request, socket, head, url, path: found.slice(1) }).catch((fault: unknown) =>
        refuseUpgrade(socket, apiErrorOf(fault)),
      );
      return;
    }
    refuseUpgrade(socket, new ApiError('not_found', 'there is nothing to upgrade to'));
  }
}

function urlOf({ url }: IncomingMessage): URL | null {
  try {
    return new URL(url ?? '', 'http://gateway');
  } catch {
    return null;
  }
}

export function refuseUpgrade(socket: Duplex, error: ApiError): void {
  const [status] = ERRORS[error.code];
  const body = JSON.stringify(bodyOf(error));
  const wait = error.retryAfterSeconds;
  socket.end(
    `HTTP/1.1 ${status} Refused\r\ncontent-type: application/json; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nx-content-type-options: nosniff\r\n` +
      `${wait === null ? '' : `retry-after: ${wait}\r\n`}connection: close\r\n\r\n${body}`,
  );
}
