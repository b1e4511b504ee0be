/** gRPC puts every message behind a flag for compression and its length in four bytes. */
export const FRAME_HEADER_BYTES = 5;

export class MalformedMessage extends Error {
  readonly code = 'malformed_message';
  constructor(detail: string) {
    super(`the event store's message is malformed: ${detail}`);
    this.name = 'MalformedMessage';
  }
}

/** Cuts what arrives into messages. A message that arrived in one piece is a view of it. */
export class FrameParser {
  private chunks: Buffer[] = [];
  private size = 0;
  private needed = FRAME_HEADER_BYTES;

  constructor(private readonly maxMessageBytes: number) {}

  push(chunk: Buffer): Buffer[] {
    this.chunks.push(chunk);
    this.size += chunk.length;
    if (this.size < this.needed) return [];
    const whole = this.chunks.length === 1 ? chunk : Buffer.concat(this.chunks, this.size);
    const messages: Buffer[] = [];
    let at = 0;
    for (;;) {
      this.needed = FRAME_HEADER_BYTES;
      if (whole.length - at < FRAME_HEADER_BYTES) break;
      if (whole[at] !== 0) throw new MalformedMessage('it is compressed');
      const length = whole.readUInt32BE(at + 1);
      if (length > this.maxMessageBytes) throw new MalformedMessage(`it has ${length} bytes`);
      this.needed += length;
      if (whole.length - at < this.needed) break;
      messages.push(whole.subarray(at + FRAME_HEADER_BYTES, at + this.needed));
      at += this.needed;
    }
    this.size = whole.length - at;
    this.chunks = this.size === 0 ? [] : [whole.subarray(at)];
    return messages;
  }
}
