import {
  MAX_CHUNK_BYTES,
  MAX_OUTPUT_BYTES,
  MAX_OUTPUT_ITEMS,
  type OutputAccepted,
  type OutputItem,
} from '@vmux/events';

/** An item with the merged offset that its exec may be acknowledged up to once it is durable. */
export interface PumpedItem {
  readonly item: OutputItem;
  readonly ackTo: number;
}

export interface PumpPort {
  /** Returns what is durable; throws `Refusal` when nothing of this sandbox is wanted any more. */
  send(items: readonly OutputItem[]): Promise<OutputAccepted>;
  /** Lets the supervisor free what is durable. */
  acknowledge(execId: string, mergedOffset: number): void;
}

interface Waiting extends PumpedItem {
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Carries a sandbox's output to the log, one frame at a time: a frame is what arrived while the previous
 * one was being stored. `push` resolves when its item is durable, so a follower that keeps a bounded
 * number of pushes open never makes the runner grow.
 */
export class OutputPump {
  private queue: Waiting[] = [];
  private sending = false;
  private broken: { readonly error: unknown } | undefined;

  constructor(private readonly port: PumpPort) {}

  push(pumped: PumpedItem): Promise<void> {
    if (this.broken) return Promise.reject(this.broken.error);
    return new Promise((done, failed) => {
      this.queue.push({ ...pumped, done, failed });
      if (!this.sending) void this.run();
    });
  }

  private async run(): Promise<void> {
    this.sending = true;
    // What arrives in the same turn of the event loop goes into the first frame.
    await Promise.resolve();
    while (this.queue.length > 0) {
      const batch = this.takeBatch();
      try {
        const answer = await this.port.send(merged(batch.map(({ item }) => item)));
        if (answer.refused) throw new PartlyRefused(answer.refused.code, answer.refused.message);
        this.settle(batch);
      } catch (error) {
        this.broken = { error };
        for (const { failed } of [...batch, ...this.queue.splice(0)]) failed(error);
      }
    }
    this.sending = false;
  }

  private settle(batch: readonly Waiting[]): void {
    const acks = new Map<string, number>();
    for (const { item, ackTo } of batch) acks.set(item.execId, ackTo);
    for (const [execId, offset] of acks) this.port.acknowledge(execId, offset);
    for (const { done } of batch) done();
  }

  private takeBatch(): Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const { item } of this.queue) {
      bytes += item.kind === 'chunk' ? item.bytes.length : 0;
      if (count === MAX_OUTPUT_ITEMS || bytes > MAX_OUTPUT_BYTES) break;
      count += 1;
    }
    return this.queue.splice(0, count);
  }
}

/** The log took a frame's beginning only. */
export class PartlyRefused extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = 'PartlyRefused';
  }
}

/** Joins neighbours that continue one another, so that small writes do not become small events. */
function merged(items: readonly OutputItem[]): OutputItem[] {
  const joined: { item: OutputItem; parts: Uint8Array[]; length: number }[] = [];
  for (const item of items) {
    const last = joined.at(-1);
    if (last && continues(last.item, last.length, item)) {
      last.parts.push(item.bytes);
      last.length += item.bytes.length;
    } else {
      const bytes = item.kind === 'chunk' ? item.bytes : undefined;
      joined.push({ item, parts: bytes ? [bytes] : [], length: bytes?.length ?? 0 });
    }
  }
  return joined.map(({ item, parts }) =>
    item.kind === 'chunk' && parts.length > 1 ? { ...item, bytes: Buffer.concat(parts) } : item,
  );
}

type Chunk = Extract<OutputItem, { readonly kind: 'chunk' }>;

const continues = (last: OutputItem, length: number, next: OutputItem): next is Chunk =>
  last.kind === 'chunk' &&
  next.kind === 'chunk' &&
  last.execId === next.execId &&
  last.stream === next.stream &&
  last.offset + length === next.offset &&
  length + next.bytes.length <= MAX_CHUNK_BYTES;
