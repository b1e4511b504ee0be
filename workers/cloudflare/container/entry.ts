import { randomUUID, timingSafeEqual } from 'node:crypto';
import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { SupervisorClient } from '@vmux/runner-kit';
import { type WebSocket, WebSocketServer } from 'ws';
import { ENTRY_HEADERS, type EntryStatus, type LaunchBody } from '../src/entry-client';
import type { Notice, SandboxName } from '../src/wire';
import { WebSocketPipe } from './web-socket-pipe';

/** How a supervisor is started and reached; the one thing in which a container and its emulation differ. */
export interface Inside {
  launch(body: LaunchBody): Promise<void>;
  /** A byte pipe to the supervisor. */
  connect(name: SandboxName): Promise<Duplex>;
}

export interface EntryOptions {
  readonly token: string;
  readonly inside: Inside;
  /** Of a container that this program takes up again. */
  readonly resumed?: { readonly boot: string; readonly name: SandboxName | null };
}

const maxBodyBytes = 64 * 1024;

class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/**
 * The program that a container starts with, as seen from the Worker: it launches one supervisor, once, and
 * carries bytes to it. A boot that was never launched answers nobody who means another one.
 */
export class Entry {
  readonly boot: string;
  private name: SandboxName | null;
  private launching: Promise<void> | undefined;
  private readonly pipes = new Map<WebSocket, string>();
  private readonly sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  private evictedAtMs: number | undefined;

  constructor(private readonly options: EntryOptions) {
    this.boot = options.resumed?.boot ?? randomUUID();
    this.name = options.resumed?.name ?? null;
  }

  /** What runs inside, once it was launched. */
  get launched(): SandboxName | null {
    return this.name;
  }

  handle(request: IncomingMessage, response: ServerResponse): void {
    this.answer(request, response).catch((fault) => {
      const status = fault instanceof Refused ? fault.status : 500;
      const message = fault instanceof Error ? fault.message : String(fault);
      if (response.headersSent) response.destroy();
      else response.writeHead(status, { 'content-type': 'text/plain' }).end(message);
    });
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.open(request, socket, head).catch((fault) => {
      const status = fault instanceof Refused ? fault.status : 502;
      const message = fault instanceof Error ? fault.message : String(fault);
      socket.end(
        `HTTP/1.1 ${status} Refused\r\ncontent-length: ${Buffer.byteLength(message)}\r\nconnection: close\r\n\r\n${message}`,
      );
    });
  }

  /** Tells every runner, those that connect later too, that the container is about to be killed. */
  evict(deadlineAtMs: number): void {
    this.evictedAtMs = deadlineAtMs;
    for (const pipe of this.pipes.keys()) this.notify(pipe);
  }

  /** Ends every pipe; what runs inside goes on. */
  cut(): void {
    for (const pipe of this.pipes.keys()) pipe.terminate();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.checkToken(request);
    const url = new URL(request.url ?? '/', 'http://entry');
    const asked = `${request.method} ${url.pathname}`;
    if (asked === 'GET /status') return json(response, await this.status());
    if (asked === 'POST /launch') return json(response, await this.launch(await jsonOf(request)));
    this.checkBoot(request);
    if (asked === 'POST /fence') return json(response, this.fence(request));
    if (asked === 'GET /archive') return this.archive(directoryOf(url), response);
    if (asked === 'PUT /archive') return this.unpack(directoryOf(url), request, response);
    if (url.pathname.startsWith('/ports/')) return this.proxy(request, response);
    throw new Refused(404, `no such thing: ${asked}`);
  }

  private async open(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    this.checkToken(request);
    this.checkBoot(request);
    const path = request.url ?? '';
    if (path.startsWith('/ports/')) return this.tunnel(request, socket, head);
    if (path !== '/pipe') throw new Refused(404, `no such thing: ${path}`);
    const supervisor = await this.options.inside.connect(this.needName());
    const runner = String(request.headers[ENTRY_HEADERS.runner] ?? '');
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => {
      this.pipes.set(webSocket, runner);
      webSocket.once('close', () => this.pipes.delete(webSocket));
      const pipe = new WebSocketPipe(webSocket);
      supervisor.on('error', () => pipe.destroy());
      supervisor.on('close', () => pipe.destroy());
      pipe.on('error', () => supervisor.destroy());
      pipe.on('close', () => supervisor.destroy());
      supervisor.pipe(pipe).pipe(supervisor);
      if (this.evictedAtMs !== undefined) this.notify(webSocket);
    });
  }

  private async status(): Promise<EntryStatus> {
    const { boot, name } = this;
    const pipes = this.pipes.size;
    const isEvicting = this.evictedAtMs !== undefined;
    if (!name) return { boot, name, pipes, runningExecs: 0, isEvicting };
    const client = await this.client();
    try {
      const { runningExecs = 0 } = await client.figures();
      return { boot, name, pipes, runningExecs, isEvicting };
    } finally {
      client.close();
    }
  }

  private async launch(body: LaunchBody): Promise<EntryStatus> {
    if (this.name && this.name.instance !== body.name.instance)
      throw new Refused(409, 'another sandbox runs here');
    this.launching ??= this.options.inside.launch(body);
    await this.launching;
    this.name = body.name;
    return this.status();
  }

  private fence(request: IncomingMessage): object {
    const keep = request.headers[ENTRY_HEADERS.runner];
    for (const [pipe, runner] of this.pipes) if (runner !== keep) pipe.terminate();
    return {};
  }

  private async archive(directory: string, response: ServerResponse): Promise<void> {
    const client = await this.client();
    try {
      response.writeHead(200, { 'content-type': 'application/gzip' });
      await pipeline(client.files.tarOut(directory), createGzip({ level: 1 }), response);
    } finally {
      client.close();
    }
  }

  private async unpack(
    directory: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const client = await this.client();
    try {
      for await (const { name } of client.files.list(directory))
        await client.files.remove(`${directory}/${name}`, { recursive: true });
      await pipeline(request, createGunzip(), (content) => client.files.tarIn(directory, content));
      json(response, {});
    } finally {
      client.close();
    }
  }

  private async proxy(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { port, path } = portOf(request.url ?? '');
    const client = await this.client();
    response.once('close', () => client.close());
    const connection = await client.dial(port);
    const { method } = request;
    const headers = outsideHeaders(request, port);
    const outgoing = httpRequest({
      method,
      path,
      headers,
      createConnection: () => connection,
    });
    const incoming = new Promise<IncomingMessage>((resolve, reject) => {
      outgoing.once('response', resolve);
      outgoing.once('error', reject);
    });
    await pipeline(request, outgoing);
    const answered = await incoming;
    response.writeHead(answered.statusCode ?? 502, answered.headers);
    await pipeline(answered, response);
  }

  /** An upgrade is handed over byte by byte: what it speaks afterwards is between the two. */
  private async tunnel(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const { port, path } = portOf(request.url ?? '');
    const client = await this.client();
    const connection = await client.dial(port);
    const lines = Object.entries(outsideHeaders(request, port)).flatMap(([name, value]) =>
      [value ?? []].flat().map((one) => `${name}: ${one}\r\n`),
    );
    connection.write(`${request.method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
    connection.write(head);
    for (const end of [connection, socket]) {
      end.on('error', () => client.close());
      end.on('close', () => {
        client.close();
        socket.destroy();
      });
    }
    connection.pipe(socket).pipe(connection);
  }

  private async client(): Promise<SupervisorClient> {
    const name = this.needName();
    return SupervisorClient.connect(await this.options.inside.connect(name), name);
  }

  private needName(): SandboxName {
    if (!this.name) throw new Refused(410, 'nothing was launched in this container');
    return this.name;
  }

  private notify(pipe: WebSocket): void {
    const notice: Notice = { notice: 'evicting', deadlineAtMs: this.evictedAtMs ?? Date.now() };
    pipe.send(JSON.stringify(notice));
  }

  private checkToken({ headers }: IncomingMessage): void {
    const given = Buffer.from(String(headers[ENTRY_HEADERS.token] ?? ''));
    const wanted = Buffer.from(this.options.token);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted))
      throw new Refused(401, 'this container is not the one that is meant');
  }

  private checkBoot({ headers }: IncomingMessage): void {
    if (headers[ENTRY_HEADERS.boot] !== this.boot || !this.name)
      throw new Refused(410, 'this container is not the one that is meant');
  }
}

function portOf(target: string): { readonly port: number; readonly path: string } {
  const [, port, rest] = /^\/ports\/(\d{1,5})(\/.*)?$/.exec(target) ?? [];
  if (!port) throw new Refused(404, `no such thing: ${target}`);
  return { port: Number(port), path: rest ?? '/' };
}

/** Nothing that is between the Worker and this program reaches what runs inside. */
function outsideHeaders(
  { headers }: IncomingMessage,
  port: number,
): NodeJS.Dict<string | string[]> {
  const kept = Object.entries(headers).filter(([name]) => !name.startsWith('x-vmux-'));
  return { ...Object.fromEntries(kept), host: `localhost:${port}` };
}

function directoryOf(url: URL): string {
  const directory = url.searchParams.get('directory') ?? '';
  if (!/^\/[a-z]+$/.test(directory)) throw new Refused(400, 'which directory?');
  return directory;
}

async function jsonOf(request: IncomingMessage): Promise<LaunchBody> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > maxBodyBytes) throw new Refused(413, 'too long');
    pieces.push(piece);
  }
  return JSON.parse(Buffer.concat(pieces).toString());
}

const json = (response: ServerResponse, value: unknown): void =>
  void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
