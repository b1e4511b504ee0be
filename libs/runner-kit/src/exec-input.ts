import { ProtocolViolation } from './errors';
import type { SupervisorClient } from './supervisor-client';
import { asBuffer, MAX_DATA } from './wire';

/** One writer to an exec's stdin or terminal, in order. */
export interface ExecInput {
  /** Resolves when the sandbox has taken every byte. */
  write(data: Uint8Array): Promise<void>;
  /** Ends the input; on a terminal, types its end-of-file character. */
  end(): Promise<void>;
  /** Everything below it has been taken, once. */
  readonly next: number;
}

let lastWriter = 0;

/** Writers grow with time and never repeat within this process. */
function nextWriter(): number {
  lastWriter = Math.max(lastWriter + 1, Date.now() * 1000);
  return lastWriter;
}

export function openInput(
  client: SupervisorClient,
  execId: string,
  {
    writer = nextWriter(),
    offset = 0,
    signal,
  }: { writer?: number; offset?: number; signal?: AbortSignal } = {},
): ExecInput {
  let at = offset;
  let next = offset;
  let tail: Promise<void> = Promise.resolve();

  const send = async (data: Buffer, end: boolean): Promise<void> => {
    let rest = data;
    for (;;) {
      const piece = rest.subarray(0, MAX_DATA);
      const last = end && piece.length === rest.length;
      const taken = await client.stdin(
        { execId, writer, offset: at, data: piece, end: last },
        { signal },
      );
      next = taken.next;
      const moved = Math.min(Math.max(taken.next - at, 0), piece.length);
      at += moved;
      rest = rest.subarray(moved);
      // The end of the input has a number of its own, after the last byte.
      if (rest.length === 0 && (!end || taken.next > at)) return;
      if (taken.ready) await taken.ready;
      else if (moved === 0) throw new ProtocolViolation('STDIN_ACK: nothing taken, and not full');
    }
  };
  const queued = (data: Buffer, end: boolean): Promise<void> => {
    const sent = tail.then(() => send(data, end));
    tail = sent.catch(() => undefined);
    return sent;
  };
  return {
    write: (data) => (data.length === 0 ? Promise.resolve() : queued(asBuffer(data), false)),
    end: () => queued(Buffer.alloc(0), true),
    get next() {
      return next;
    },
  };
}
