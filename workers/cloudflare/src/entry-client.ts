import type { ContainerHandle } from './platform';
import type { Limits, SandboxName } from './wire';

/** Where the program that the container starts with listens; see ../container. */
export const ENTRY_PORT = 8671;

export const ENTRY_HEADERS = {
  token: 'x-vmux-token',
  /** Which boot of a container the request is meant for. */
  boot: 'x-vmux-boot',
  runner: 'x-vmux-runner',
} as const;

export interface LaunchBody {
  readonly name: SandboxName;
  readonly limits: Limits;
}

export interface EntryStatus {
  /** Made anew whenever a container starts: an empty disk has another one. */
  readonly boot: string;
  /** What runs inside; null in a container that nobody has launched anything in. */
  readonly name: SandboxName | null;
  readonly pipes: number;
  readonly runningExecs: number;
  /** It was told to end, and is going to be killed. */
  readonly isEvicting: boolean;
}

/** The other boot, or none, answered. */
export class AnotherContainer extends Error {
  constructor() {
    super('the container was replaced by an empty one');
    this.name = 'AnotherContainer';
  }
}

/** Talks to a running container and never starts one. */
export class EntryClient {
  constructor(
    private readonly container: ContainerHandle,
    private readonly token: string,
  ) {}

  async launch(body: LaunchBody): Promise<string> {
    const response = await this.ask('/launch', { method: 'POST', body: JSON.stringify(body) });
    return ((await response.json()) as EntryStatus).boot;
  }

  async status(withinMs: number): Promise<EntryStatus> {
    const response = await this.ask('/status', { signal: AbortSignal.timeout(withinMs) });
    return (await response.json()) as EntryStatus;
  }

  /** Ends the pipes of every other runner. */
  async fence(boot: string, runner: string): Promise<void> {
    const headers = { [ENTRY_HEADERS.boot]: boot, [ENTRY_HEADERS.runner]: runner };
    await this.ask('/fence', { method: 'POST', headers });
  }

  async archive(boot: string, directory: string): Promise<ReadableStream> {
    const path = `/archive?directory=${encodeURIComponent(directory)}`;
    const { body } = await this.ask(path, { headers: { [ENTRY_HEADERS.boot]: boot } });
    if (!body) throw new Error('the container sent no archive');
    return body;
  }

  /** Empties the directory first. */
  async unpack(boot: string, directory: string, archive: ReadableStream): Promise<void> {
    const path = `/archive?directory=${encodeURIComponent(directory)}`;
    const headers = { [ENTRY_HEADERS.boot]: boot };
    await this.ask(path, { method: 'PUT', headers, body: archive, duplex: 'half' });
  }

  /** Passes a request on as it is, upgrades too. The caller looks at the answer. */
  forward(boot: string, path: string, request: Request): Promise<Response> {
    const forwarded = new Request(`http://container${path}`, request);
    forwarded.headers.set(ENTRY_HEADERS.token, this.token);
    forwarded.headers.set(ENTRY_HEADERS.boot, boot);
    return this.container.getTcpPort(ENTRY_PORT).fetch(forwarded);
  }

  private async ask(path: string, init: RequestInit & { duplex?: 'half' }): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set(ENTRY_HEADERS.token, this.token);
    const port = this.container.getTcpPort(ENTRY_PORT);
    const response = await port.fetch(`http://container${path}`, { ...init, headers });
    if (response.status === 410 || response.status === 401) throw new AnotherContainer();
    if (!response.ok)
      throw new Error(`the container answered ${response.status}: ${await response.text()}`);
    return response;
  }
}
