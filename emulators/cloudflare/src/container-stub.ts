import type { ContainerHandle } from '../../../workers/cloudflare/src/platform';

/** Where the stand-in listens, and what proves that it is asked by this emulator. */
export interface StandInAddress {
  readonly url: string;
  readonly token: string;
}

/**
 * What a Durable Object has as `ctx.container`, carried out by the stand-in. `running` is known at once, as
 * the platform's is: it turns true with `start` and false when the stand-in says that the container ended.
 */
export class ContainerStub implements ContainerHandle {
  running = false;
  private starting: Promise<unknown> = Promise.resolve();
  private ended: Promise<number> | undefined;

  constructor(
    private readonly standIn: StandInAddress,
    private readonly id: string,
  ) {}

  /** For an object that is made anew while its container runs on. */
  async refresh(): Promise<void> {
    const response = await this.ask('');
    this.running = ((await response.json()) as { running: boolean }).running;
    if (this.running) this.watch();
  }

  start(options: { env?: Record<string, string> } = {}): void {
    if (this.running)
      throw new Error('start() cannot be called on a container that is already running.');
    this.running = true;
    this.starting = this.ask('/start', { method: 'POST', body: JSON.stringify(options.env ?? {}) });
    this.starting.catch(() => {
      this.running = false;
    });
    this.watch();
  }

  /** Settles when the container ends, as the platform's does: in failure unless it ended with 0. */
  async monitor(): Promise<void> {
    const code = await (this.ended ?? this.watch());
    if (code !== 0) throw new Error(`container exited with unexpected exit code: ${code}`);
  }

  async destroy(): Promise<void> {
    await this.starting.catch(() => undefined);
    await this.ask('/destroy', { method: 'POST' });
    this.running = false;
  }

  signal(number: number): void {
    void this.ask('/signal', { method: 'POST', body: JSON.stringify({ number }) });
  }

  getTcpPort(port: number): ReturnType<ContainerHandle['getTcpPort']> {
    return {
      fetch: async (url, init) => {
        if (!this.running) throw new Error('the container is not listening: it does not run');
        await this.starting;
        const request = new Request(url, init);
        const { pathname, search } = new URL(request.url);
        return this.send(`/tcp/${port}${pathname}${search}`, request);
      },
    };
  }

  setInactivityTimeout(): void {}
  interceptOutboundHttp(): void {}
  interceptOutboundHttps(): void {}
  interceptAllOutboundHttp(): void {}

  private watch(): Promise<number> {
    this.ended = this.starting.then(async () => {
      for (;;) {
        const response = await this.ask('/exit');
        if (response.status === 204) continue;
        this.running = false;
        this.ended = undefined;
        return ((await response.json()) as { exitCode: number }).exitCode;
      }
    });
    this.ended.catch(() => undefined);
    return this.ended;
  }

  private async ask(path: string, init?: RequestInit): Promise<Response> {
    const response = await this.send(path, new Request('http://stand-in/', init));
    if (!response.ok)
      throw new Error(`the stand-in answered ${response.status}: ${await response.text()}`);
    return response;
  }

  private send(path: string, request: Request): Promise<Response> {
    const sent = new Request(`${this.standIn.url}/containers/${this.id}${path}`, request);
    sent.headers.set('x-vmux-stand-in', this.standIn.token);
    return fetch(sent);
  }
}
