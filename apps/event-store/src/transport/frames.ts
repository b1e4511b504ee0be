import { CallError, Status } from '../protocol/status';

const HEADER_BYTES = 5;
const EMPTY = Buffer.alloc(0);

/**
 * Cuts a byte stream into gRPC messages. A message that has arrived whole is a view of what was
 * received. What a length announces is checked before any of it is kept.
 */
export class FrameParser {
  private chunks: Buffer[] = [];
  private size = 0;
  private needed = HEADER_BYTES;

  constructor(private readonly maxMessageBytes: number) {}

  push(chunk: Buffer): Buffer[] {
    this.chunks.push(chunk);
    this.size += chunk.length;
    if (this.size < this.needed) return [];
    let rest = this.chunks.length === 1 ? chunk : Buffer.concat(this.chunks, this.size);
    const messages: Buffer[] = [];
    for (;;) {
      this.needed = HEADER_BYTES;
      if (rest.length < HEADER_BYTES) break;
      this.needed += this.checkedLength(rest);
      if (rest.length < this.needed) break;
      messages.push(rest.subarray(HEADER_BYTES, this.needed));
      rest = rest.subarray(this.needed);
    }
    this.chunks = rest.length === 0 ? [] : [rest];
    this.size = rest.length;
    return messages;
  }

  /** Call when nothing more will come. */
  end(): void {
    if (this.size > 0) throw new CallError(Status.INTERNAL, 'the last message is cut short');
  }

  clear(): void {
    this.chunks = [EMPTY];
    this.size = 0;
  }

  private checkedLength(header: Buffer): number {
    if (header[0] !== 0) {
      throw new CallError(
        Status.UNIMPLEMENTED,
        header[0] === 1 ? 'compressed messages are not supported' : 'not a gRPC message',
      );
    }
    const length = header.readUInt32BE(1);
    if (length > this.maxMessageBytes) {
      throw new CallError(
        Status.RESOURCE_EXHAUSTED,
        `a message of ${length} bytes is larger than ${this.maxMessageBytes}`,
      );
    }
    return length;
  }
}
