import { visible } from './escape';

/** One line that changes, for somebody who watches; pipes never see it. */
export class StatusLine {
  private isShown = false;

  show(text: string): void {
    if (!process.stderr.isTTY) return;
    const width = Math.max(20, (process.stderr.columns || 80) - 1);
    process.stderr.write(`\r\u001b[K${visible(`vmux: ${text}`).slice(0, width)}`);
    this.isShown = true;
  }

  clear(): void {
    if (this.isShown) process.stderr.write('\r\u001b[K');
    this.isShown = false;
  }
}
