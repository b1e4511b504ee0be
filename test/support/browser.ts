import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { releaseLater, startProcess, temporaryDirectory, until } from '@vmux/testing';
import { WebSocket } from 'ws';

const names = [
  'chromium-headless-shell',
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
];

/** Nothing where none is installed. */
export const browserProgram: string | undefined = names
  .flatMap((name) => (process.env.PATH ?? '').split(delimiter).map((dir) => join(dir, name)))
  .find((path) => existsSync(path));

export interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly domain: string;
  readonly path: string;
  readonly httpOnly: boolean;
  readonly secure: boolean;
  readonly sameSite?: string;
}

type Answer = Readonly<Record<string, unknown>>;

/** A real browser without a window, driven by its own debugging protocol. */
export class Browser {
  private readonly waiting = new Map<
    number,
    { resolve(value: Answer): void; reject(fault: Error): void }
  >();
  private last = 0;

  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (data) => this.take(data.toString()));
  }

  static async start(): Promise<Browser> {
    if (!browserProgram) throw new Error('no browser is installed');
    const { ready } = await startProcess({
      command: browserProgram,
      args: [
        ...['--headless', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
        // Its own sandbox needs a user other than root.
        ...['--no-sandbox', '--disable-dev-shm-usage', '--remote-debugging-port=0'],
        `--user-data-dir=${temporaryDirectory('browser')}`,
      ],
      env: process.env,
      ready: (line) => /^DevTools listening on (ws:\S+)/.exec(line)?.[1],
      readyTimeoutMs: 60_000,
    });
    const socket = new WebSocket(ready, { perMessageDeflate: false });
    await new Promise<void>((resolve, reject) => {
      socket.once('open', () => resolve());
      socket.once('error', reject);
    });
    releaseLater(() => socket.terminate());
    return new Browser(socket);
  }

  /** A page of its own: it shares neither cookies nor storage with others. */
  async page(): Promise<Page> {
    const { browserContextId } = await this.ask('Target.createBrowserContext');
    const { targetId } = await this.ask('Target.createTarget', {
      url: 'about:blank',
      browserContextId,
    });
    const { sessionId } = await this.ask('Target.attachToTarget', { targetId, flatten: true });
    return new Page((method, params) => this.ask(method, params, String(sessionId)));
  }

  private ask(method: string, params: object = {}, sessionId?: string): Promise<Answer> {
    this.last += 1;
    const id = this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ id, method, params, sessionId }));
    });
  }

  private take(text: string): void {
    const { id, result, error } = JSON.parse(text);
    const asked = this.waiting.get(id);
    // The rest are events, for which nobody waits.
    if (!asked) return;
    this.waiting.delete(id);
    if (error) asked.reject(new Error(error.message));
    else asked.resolve(result);
  }
}

export class Page {
  constructor(private readonly ask: (method: string, params?: object) => Promise<Answer>) {}

  async open(url: string): Promise<void> {
    const { errorText } = await this.ask('Page.navigate', { url });
    if (errorText) throw new Error(`${url}: ${errorText}`);
  }

  /** The value of an expression, or of the promise that it is. */
  async run<Value = unknown>(expression: string): Promise<Value> {
    const { result, exceptionDetails } = await this.ask('Runtime.evaluate', {
      ...{ expression, awaitPromise: true, returnByValue: true },
    });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value: Value }).value;
  }

  /** Lets scripts of the test do what the page's own policy forbids to every script. */
  async ignorePolicy(): Promise<void> {
    await this.ask('Page.setBypassCSP', { enabled: true });
  }

  /** What a visitor reads. */
  text(): Promise<string> {
    return this.run<string>("document.body?.innerText ?? ''");
  }

  title(): Promise<string> {
    return this.run<string>('document.title');
  }

  url(): Promise<string> {
    return this.run<string>('location.href');
  }

  async cookies(): Promise<readonly Cookie[]> {
    const { cookies } = await this.ask('Network.getCookies');
    return cookies as readonly Cookie[];
  }

  /** While a page turns into another, nothing can be asked of it. */
  async shows(wanted: string | RegExp, timeoutMs = 30_000): Promise<string> {
    const text = () => this.text().catch(() => '');
    const isThere = (shown: string) =>
      typeof wanted === 'string' ? shown.includes(wanted) : wanted.test(shown);
    try {
      return await until(
        async () => {
          const shown = await text();
          return isThere(shown) && shown;
        },
        { timeoutMs },
      );
    } catch (cause) {
      throw new Error(`the page does not show ${wanted} but: ${await text()}`, { cause });
    }
  }
}
