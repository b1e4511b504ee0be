import {
  controlReportSubject,
  encodeOutput,
  MAX_CHUNK_BYTES,
  NO_OUTPUT,
  type OutputItem,
  type OutputReply,
  outputReportSubject,
  type ReportMessage,
  type ReportReply,
  type Sizes,
  type Stream,
} from '@vmux/events';
import { type Bus, decodeJson, encodeJson } from '@vmux/messaging';

export interface Sandbox {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
}

/** What a runner reports, said in its name. */
export class Reporter {
  /** Says again what failed and may succeed later, as a runner does. */
  insists = true;
  private hasGivenUp = false;

  constructor(
    readonly bus: Bus,
    readonly runnerId: string,
  ) {}

  async report<T extends ReportMessage['type']>(
    sandbox: Sandbox,
    type: T,
    data: Extract<ReportMessage, { type: T }>['data'],
  ): Promise<ReportReply> {
    const { sessionId, epoch, instance } = sandbox;
    const frame = encodeJson({ sessionId, epoch, instance, type, at: Date.now(), data });
    return (await this.say(controlReportSubject(this.runnerId), frame)) as ReportReply;
  }

  async output(sandbox: Sandbox, items: readonly OutputItem[]): Promise<OutputReply> {
    const { sessionId, epoch, instance } = sandbox;
    const frame = encodeOutput({ sessionId, epoch, instance, items });
    return (await this.say(outputReportSubject(this.runnerId), frame)) as OutputReply;
  }

  write(
    sandbox: Sandbox,
    execId: string,
    offset: number,
    bytes: Uint8Array,
    stream: Stream = 'stdout',
  ) {
    return this.output(sandbox, chunksOf(execId, offset, bytes, stream));
  }

  exit(sandbox: Sandbox, execId: string, sizes: Partial<Sizes> = {}) {
    return this.report(sandbox, 'ExecExited', {
      ...{ execId, outcome: { kind: 'exited', code: 0 }, usage: null },
      sizes: { ...NO_OUTPUT, ...sizes },
    });
  }

  /** What nobody answered is said again. */
  private async say(subject: string, frame: Uint8Array): Promise<unknown> {
    for (let left = 60; ; left -= 1) {
      const isLast = left === 0 || this.hasGivenUp;
      try {
        const reply = decodeJson(await this.bus.request(subject, frame, { timeoutMs: 2_000 }));
        if (isLast || !this.insists || !mayHelpToRepeat(reply)) return reply;
      } catch (fault) {
        if (isLast) throw fault;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** What is not answered by now is not said again. */
  protected giveUp(): void {
    this.hasGivenUp = true;
  }
}

export const chunksOf = (
  execId: string,
  offset: number,
  bytes: Uint8Array,
  stream: Stream = 'stdout',
  size = MAX_CHUNK_BYTES,
): OutputItem[] => {
  const items: OutputItem[] = [];
  for (let from = 0; from < bytes.length; from += size)
    items.push({
      ...{ kind: 'chunk', execId, stream, offset: offset + from, at: Date.now() },
      bytes: bytes.subarray(from, from + size),
    });
  return items;
};

function mayHelpToRepeat(reply: unknown): boolean {
  return (
    typeof reply === 'object' &&
    reply !== null &&
    'failed' in reply &&
    (reply as { failed: { retry: boolean } }).failed.retry
  );
}
