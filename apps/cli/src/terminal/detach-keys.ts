const ctrlP = 0x10;
const ctrlQ = 0x11;

/** Looks for Ctrl-P Ctrl-Q in what is typed, over any division into pieces. */
export class DetachKeys {
  private isHolding = false;

  /** What to pass on, and whether the rest is not to be typed any more. */
  pass(typed: Uint8Array): { readonly bytes: Buffer; readonly detach: boolean } {
    const out: number[] = [];
    for (const byte of typed) {
      if (this.isHolding && byte === ctrlQ) {
        this.isHolding = false;
        return { bytes: Buffer.from(out), detach: true };
      }
      if (this.isHolding) out.push(ctrlP);
      this.isHolding = byte === ctrlP;
      if (!this.isHolding) out.push(byte);
    }
    return { bytes: Buffer.from(out), detach: false };
  }

  /** A Ctrl-P that nothing followed is typed after all. */
  release(): Buffer {
    const held = this.isHolding ? [ctrlP] : [];
    this.isHolding = false;
    return Buffer.from(held);
  }
}
