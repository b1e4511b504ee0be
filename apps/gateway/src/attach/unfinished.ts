type State = 'ground' | 'escape' | 'intermediate' | 'control' | 'command' | 'payload';

const BEL = 0x07;
const CAN = 0x18;
const SUB = 0x1a;
const ESC = 0x1b;
const MAX_KEPT_BYTES = 64 * 1024;

/** What follows an escape and opens something longer: `[`, `]`, `P`, `X`, `^`, `_`. */
const OPENS: ReadonlyMap<number, State> = new Map([
  [0x5b, 'control'],
  [0x5d, 'command'],
  [0x50, 'payload'],
  [0x58, 'payload'],
  [0x5e, 'payload'],
  [0x5f, 'payload'],
]);
const EIGHT_BIT = 0x40;

/**
 * Keeps the bytes of a character or an escape sequence that has begun and not ended: whoever takes over a
 * terminal in mid-sequence needs them to understand what follows.
 */
export class Unfinished {
  private state: State = 'ground';
  /** Bytes of a UTF-8 character that are still to come, and its first one. */
  private missing = 0;
  private lead = 0;
  private kept: Buffer[] = [];
  private keptBytes = 0;

  get bytes(): Buffer {
    return Buffer.concat(this.kept);
  }

  take(piece: Uint8Array): void {
    let begin = 0;
    for (let at = 0; at < piece.length; at += 1) {
      const byte = piece[at] ?? 0;
      // An escape ends whatever was open, and begins another.
      if (byte === ESC || !this.isPending) {
        begin = at;
        this.drop();
      }
      this.step(byte);
      if (!this.isPending) this.drop();
    }
    if (this.isPending) this.keep(piece.subarray(begin));
  }

  private get isPending(): boolean {
    return this.state !== 'ground' || this.missing > 0;
  }

  private step(byte: number): void {
    if (byte >= 0x80) this.character(byte);
    else {
      // A character that is broken off by another one is over.
      this.missing = 0;
      this.state = this.after(byte);
    }
  }

  private after(byte: number): State {
    if (byte === ESC) return 'escape';
    if (byte === CAN || byte === SUB) return 'ground';
    switch (this.state) {
      case 'ground':
        return 'ground';
      case 'escape':
        if (byte < 0x20) return 'escape';
        return byte <= 0x2f ? 'intermediate' : (OPENS.get(byte) ?? 'ground');
      case 'intermediate':
        return byte >= 0x30 ? 'ground' : 'intermediate';
      case 'control':
        return byte >= 0x40 ? 'ground' : 'control';
      case 'command':
        return byte === BEL ? 'ground' : 'command';
      case 'payload':
        return 'payload';
    }
  }

  private character(byte: number): void {
    if (byte >= 0xc2 && byte <= 0xf4) {
      this.lead = byte;
      this.missing = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    } else if (byte >= 0xc0 || this.missing === 0) {
      this.missing = 0;
    } else {
      this.missing -= 1;
      // Controls of eight bits are two bytes in UTF-8.
      if (this.missing === 0 && this.lead === 0xc2 && byte <= 0x9f)
        this.state = OPENS.get(byte - EIGHT_BIT) ?? 'ground';
    }
  }

  /** Longer ones are payloads that no screen shows: they are kept as far as their beginning. */
  private keep(rest: Uint8Array): void {
    const part = rest.subarray(0, MAX_KEPT_BYTES - this.keptBytes);
    this.kept.push(Buffer.from(part));
    this.keptBytes += part.length;
  }

  private drop(): void {
    if (this.keptBytes === 0) return;
    this.kept = [];
    this.keptBytes = 0;
  }
}
