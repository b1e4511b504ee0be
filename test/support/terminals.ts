import { until } from '@vmux/testing';
import type { EmbeddedStack } from './embedded-stack';
import { TerminalClient, type TerminalOptions } from './terminal-client';

/** The terminals of a session, and those of the test that are attached to them. */
export class Terminals {
  private readonly open: TerminalClient[] = [];

  private constructor(
    private readonly stack: EmbeddedStack,
    readonly session: string,
  ) {}

  static async of(stack: EmbeddedStack, name = 'attach'): Promise<Terminals> {
    return new Terminals(stack, (await stack.create({ name })).id);
  }

  pathOf(exec: string): string {
    return `/v1/sessions/${this.session}/execs/${exec}/attach`;
  }

  async attached(exec: string, options: TerminalOptions = {}): Promise<TerminalClient> {
    const { url, key } = this.stack.api;
    const client = await TerminalClient.open(url, this.pathOf(exec), { key, ...options });
    this.open.push(client);
    return client;
  }

  watching(exec: string): Promise<TerminalClient> {
    return this.attached(exec, { query: { mode: 'watch' } });
  }

  /** As soon as somebody serves. */
  again(exec: string, options: TerminalOptions): Promise<TerminalClient> {
    return until(() => this.attached(exec, options).catch(() => null), {
      timeoutMs: 60_000,
      everyMs: 200,
    });
  }

  start(command = 'exec sh -i'): Promise<string> {
    const env = { PS1: '$ ', HISTFILE: '' };
    return this.stack.session(this.session).start(command, { pty: { cols: 80, rows: 24 }, env });
  }

  async cancel(exec: string): Promise<void> {
    await this.stack.api.post(`/v1/sessions/${this.session}/execs/${exec}/cancel?grace=0s`);
  }

  closeAll(): void {
    for (const client of this.open.splice(0)) client.close();
  }
}

/** Both have seen as much, and it looks the same to them. */
export async function agree(one: TerminalClient, other: TerminalClient): Promise<void> {
  for (let at = -1; at < 0; ) {
    const next = await until(() => one.next === other.next && one.next, { timeoutMs: 30_000 });
    const pictures = [await one.picture(), await other.picture()];
    if (one.next !== next || other.next !== next) continue;
    expect(pictures[1]).toEqual(pictures[0]);
    at = next;
  }
}
