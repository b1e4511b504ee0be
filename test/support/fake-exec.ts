import {
  type ClearEnv,
  type ExecSpec,
  NO_OUTPUT,
  type Outcome,
  type OutputItem,
  type OutputReply,
  type Sizes,
  type Stream,
} from '@vmux/events';
import { chunksOf, type Reporter, type Sandbox } from './reporter';

/** What an exec does, told by the test. It ends with `exit`, or with 0 when the script returns. */
export type Script = (exec: FakeExec) => Promise<void> | void;

export class FakeExec {
  readonly written: Record<Stream, number> = { ...NO_OUTPUT };
  private ended = false;

  constructor(
    readonly runner: Reporter,
    readonly sandbox: Sandbox,
    readonly id: string,
    readonly spec: ExecSpec,
    readonly env: ClearEnv,
  ) {}

  async run(script: Script): Promise<void> {
    await this.runner.report(this.sandbox, 'ExecStarted', { execId: this.id, pid: 7 });
    await script(this);
    await this.exit();
  }

  async write(stream: Stream, data: string | Uint8Array): Promise<void> {
    const bytes = Buffer.from(data);
    const offset = this.written[stream];
    this.written[stream] += bytes.length;
    for (const chunk of chunksOf(this.id, offset, bytes, stream)) await this.send([chunk]);
  }

  /** Bytes that were written and no longer exist. */
  async lose(stream: Stream, length: number, reason = 'disk full'): Promise<void> {
    const from = this.written[stream];
    const to = from + length;
    this.written[stream] = to;
    await this.send([{ kind: 'gap', execId: this.id, stream, from, to, reason, at: Date.now() }]);
  }

  chunk(stream: Stream, offset: number, bytes: Uint8Array): OutputItem {
    return { kind: 'chunk', execId: this.id, stream, offset, bytes, at: Date.now() };
  }

  send(items: readonly OutputItem[]): Promise<OutputReply> {
    return this.runner.output(this.sandbox, items);
  }

  exit(code = 0): Promise<void> {
    return this.end({ kind: 'exited', code });
  }

  cancelled(): Promise<void> {
    return this.end({ kind: 'signalled', signal: 'SIGTERM' });
  }

  get hasEnded(): boolean {
    return this.ended;
  }

  private async end(outcome: Outcome): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    const sizes: Sizes = { ...this.written };
    const data = { execId: this.id, outcome, sizes, usage: null };
    await this.runner.report(this.sandbox, 'ExecExited', data);
  }
}
