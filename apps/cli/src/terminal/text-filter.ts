const ESC = 0x1b;
const BEL = 0x07;
const maxSequenceBytes = 64;

type State = 'text' | 'c2' | 'escape' | 'csi' | 'string' | 'string-escape';

/** Lets text and colours through to a terminal, over any division into pieces, and nothing that controls it. */
export class TextFilter {
  private state: State = 'text';
  private held: number[] = [];

  pass(bytes: Uint8Array): Buffer {
    const out: number[] = [];
    for (const byte of bytes) this.take(byte, out);
    return Buffer.from(out);
  }

  private take(byte: number, out: number[]): void {
    if (this.state === 'text') this.text(byte, out);
    else if (this.state === 'c2') this.afterC2(byte, out);
    else if (this.state === 'escape') this.escape(byte);
    else if (this.state === 'csi') this.csi(byte, out);
    else if (this.state === 'string-escape') this.state = byte === 0x5c ? 'text' : 'string';
    else if (byte === BEL) this.state = 'text';
    else if (byte === ESC) this.state = 'string-escape';
  }

  /** U+0080 to U+009F, in UTF-8, are control characters too. */
  private afterC2(byte: number, out: number[]): void {
    this.state = 'text';
    if (byte >= 0x80 && byte <= 0x9f) return;
    out.push(0xc2);
    this.text(byte, out);
  }

  private text(byte: number, out: number[]): void {
    if (byte === ESC) this.state = 'escape';
    else if (byte === 0xc2) this.state = 'c2';
    else if (byte >= 0x20 ? byte !== 0x7f : byte === 0x09 || byte === 0x0a || byte === 0x0d)
      out.push(byte);
  }

  private escape(byte: number): void {
    this.held = [ESC, byte];
    const opensString = byte === 0x5d || byte === 0x50 || byte === 0x58 || byte === 0x5e;
    if (byte === 0x5b) this.state = 'csi';
    else if (opensString || byte === 0x5f) this.state = 'string';
    else if (byte !== ESC) this.state = 'text';
  }

  private csi(byte: number, out: number[]): void {
    this.held.push(byte);
    if (byte >= 0x40 && byte <= 0x7e) {
      const parameters = this.held.slice(2, -1);
      const isColour = byte === 0x6d && parameters.every((each) => each >= 0x30 && each <= 0x3b);
      if (isColour) out.push(...this.held);
      this.state = 'text';
    } else if (byte < 0x20 || byte > 0x7e || this.held.length > maxSequenceBytes) {
      this.state = 'text';
    }
  }
}
