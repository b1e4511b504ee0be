import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';

export interface PreviewReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
}

export interface PreviewCall {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** In place of the client's own; null for none. */
  readonly token?: string | null;
}

/** Somebody who looks at one port of one session, by its name. */
export class PreviewClient {
  readonly host: string;

  constructor(
    private readonly gateway: string,
    session: string,
    port: number,
    readonly token: string | null,
  ) {
    this.host = `${port}-${session}.localhost:${new URL(gateway).port}`;
  }

  get origin(): string {
    return `http://${this.host}`;
  }

  /** For clients that resolve names themselves: the address to dial and the headers to send. */
  get address(): { readonly url: string; readonly headers: Record<string, string> } {
    const headers: Record<string, string> = { host: this.host };
    if (this.token !== null) headers['x-vmux-preview-token'] = this.token;
    return { url: this.gateway, headers };
  }

  get(path: string, call: PreviewCall = {}): Promise<PreviewReply> {
    return this.call(path, call);
  }

  open(path: string, { method = 'GET', headers = {}, token = this.token }: PreviewCall = {}) {
    return httpRequest(`${this.gateway}${path}`, {
      method,
      headers: {
        host: this.host,
        ...(token === null ? {} : { 'x-vmux-preview-token': token }),
        ...headers,
      },
    });
  }

  call(path: string, call: PreviewCall = {}): Promise<PreviewReply> {
    return new Promise((resolve, reject) => {
      const request = this.open(path, call);
      request.on('error', reject);
      request.on('response', (response) => {
        const pieces: Buffer[] = [];
        response.on('data', (piece: Buffer) => pieces.push(piece));
        response.on('aborted', () => reject(new Error('the answer was cut')));
        response.on('end', () => {
          const bytes = Buffer.concat(pieces);
          const { statusCode: status = 0, headers } = response;
          resolve({ status, headers, bytes, text: bytes.toString() });
        });
      });
      request.end(call.body);
    });
  }
}
