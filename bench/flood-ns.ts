import { releaseAll } from '@vmux/testing';
import { type ClientSession, EmbeddedStack } from '../test/support/embedded-stack';
import { execsBeside, type Flood, type FloodFigures } from './flood';

const MIB = 1024 * 1024;
const PIECE_MIB = 8;

/** The same with sandboxes of namespaces: `yes` in one of them, execs in another. */
export async function besideYes(): Promise<FloodFigures> {
  const stack = await EmbeddedStack.start();
  try {
    const flooding = await stack.create({ name: 'yes' });
    const other = await stack.create({ name: 'other' });
    return await execsBeside(stack.api, other.id, new Yes(flooding));
  } finally {
    await stack.stop();
    await releaseAll();
  }
}

/** One after the other, so that what a sandbox has still to send when it is held is soon sent. */
class Yes implements Flood {
  private flowing: Promise<void> | null = null;
  private held = true;
  private written = 0;
  private flowedMs = 0;

  constructor(private readonly session: ClientSession) {}

  flow(): void {
    this.held = false;
    this.flowing = this.run();
  }

  async hold(): Promise<void> {
    this.held = true;
    await this.flowing;
  }

  end(): Promise<void> {
    return this.hold();
  }

  get mibPerSecond(): number {
    return this.written / MIB / (this.flowedMs / 1000);
  }

  private async run(): Promise<void> {
    const started = performance.now();
    while (!this.held) {
      const body = { command: `yes | head -c ${PIECE_MIB * MIB}` };
      const { json, text } = await this.session.ask('execs?wait=120s&maxBytes=1', body);
      if (json.exit?.code !== 0) throw new Error(text);
      this.written += PIECE_MIB * MIB;
    }
    this.flowedMs += performance.now() - started;
  }
}
