import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { DIRECTORIES } from '../../../workers/cloudflare/src/checkpoints';
import { ENTRY_PORT } from '../../../workers/cloudflare/src/entry-client';
import { EmulatedContainer, type Local } from './emulated-container';

const lastPartOfSave = `/archive?directory=${encodeURIComponent(DIRECTORIES.at(-1) ?? '')}`;
const longestWaitMs = 20_000;

interface Asked {
  readonly id: string;
  readonly verb: string;
  readonly rest: string;
}

/** Stands in for Cloudflare's containers: asked by the stub in workerd, on loopback, with a token. */
export class StandIn {
  private readonly containers = new Map<string, EmulatedContainer>();
  private readonly server: Server;

  /** What else may be asked with the token, below /control/. */
  onControl: ((path: string) => Promise<unknown>) | undefined;

  private constructor(
    private readonly local: Local,
    private readonly token: string,
  ) {
    this.server = createServer((request, response) => {
      this.answer(request, response).catch((fault) => {
        if (response.headersSent) response.destroy();
        else response.writeHead(500).end(String(fault));
      });
    });
    this.server.on('upgrade', (request, socket, head) => this.upgrade(request, socket, head));
  }

  static async listen(local: Local, token: string): Promise<StandIn> {
    const standIn = new StandIn(local, token);
    for (const found of await EmulatedContainer.findAll(local))
      standIn.containers.set(found.id, found);
    await new Promise<void>((done) => standIn.server.listen(0, '127.0.0.1', done));
    return standIn;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  container(id: string): EmulatedContainer | undefined {
    const container = this.containers.get(id);
    return container?.running ? container : undefined;
  }

  /** Containers go on. */
  async close(): Promise<void> {
    for (const container of this.containers.values()) container.leave();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '' } = request;
    if (!this.isTrusted(request)) return void response.writeHead(404).end();
    if (url.startsWith('/control/') && this.onControl)
      return json(response, await this.onControl(url.slice('/control/'.length)));
    const asked = this.parse(request);
    if (!asked) return void response.writeHead(404).end();
    const { id, verb, rest } = asked;
    const container = this.container(id);
    if (verb === 'tcp') return this.connect(container, request, response, rest);
    if (verb === '') return json(response, { running: container !== undefined });
    if (verb === 'exit') return this.exit(this.containers.get(id), response);
    if (verb === 'start') this.start(id, JSON.parse(await textOf(request)));
    else if (verb === 'destroy') await container?.destroy();
    else if (verb === 'signal') {
      const { number } = JSON.parse(await textOf(request));
      if (number === 9) await container?.destroy();
      else container?.evict(15 * 60_000);
    } else return void response.writeHead(404).end();
    json(response, {});
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const asked = this.parse(request);
    const container = asked && this.container(asked.id);
    if (!container || !asked.rest.startsWith(`${ENTRY_PORT}/`))
      return void socket.end('HTTP/1.1 502 Not listening\r\nconnection: close\r\n\r\n');
    request.url = asked.rest.slice(String(ENTRY_PORT).length);
    container.entry.upgrade(request, socket, head);
  }

  private async connect(
    container: EmulatedContainer | undefined,
    request: IncomingMessage,
    response: ServerResponse,
    rest: string,
  ): Promise<void> {
    if (!container || !rest.startsWith(`${ENTRY_PORT}/`)) return void response.writeHead(502).end();
    request.url = rest.slice(String(ENTRY_PORT).length);
    if (request.method === 'GET' && request.url === lastPartOfSave)
      await container.beforeLastPartOfSave();
    container.entry.handle(request, response);
  }

  private start(id: string, env: { readonly VMUX_ENTRY_TOKEN?: string }): void {
    if (this.container(id)) return;
    this.containers.set(id, EmulatedContainer.start(id, this.local, env.VMUX_ENTRY_TOKEN ?? ''));
  }

  private async exit(
    container: EmulatedContainer | undefined,
    response: ServerResponse,
  ): Promise<void> {
    if (!container) return json(response, { exitCode: 137 });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), longestWaitMs);
    });
    const exitCode = await Promise.race([container.ended, late]);
    clearTimeout(timer);
    if (exitCode === undefined) response.writeHead(204).end();
    else json(response, { exitCode });
  }

  private isTrusted({ headers }: IncomingMessage): boolean {
    const given = Buffer.from(String(headers['x-vmux-stand-in'] ?? ''));
    const wanted = Buffer.from(this.token);
    return given.length === wanted.length && timingSafeEqual(given, wanted);
  }

  private parse(request: IncomingMessage): Asked | undefined {
    if (!this.isTrusted(request)) return undefined;
    const parts = /^\/containers\/([0-9a-f]{64})(?:\/([a-z]+)(?:\/(.*))?)?$/.exec(
      request.url ?? '',
    );
    if (!parts?.[1]) return undefined;
    return { id: parts[1], verb: parts[2] ?? '', rest: parts[3] ?? '' };
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

const json = (response: ServerResponse, value: unknown): void =>
  void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
