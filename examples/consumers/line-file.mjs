// A file of JSON lines whose last line tells where its writer was. A database would do the same with a
// transaction that stores the record and the checkpoint together.
import { open } from 'node:fs/promises';

const CHUNK = 64 * 1024;

export class LineFile {
  #file;
  #size;

  static async open(path) {
    const self = new LineFile();
    self.#file = await open(path, 'a+', 0o600);
    await self.#cutHalfALine();
    return self;
  }

  /** What the last line says; null in an empty file. */
  last = null;

  async append(value) {
    const line = Buffer.from(`${JSON.stringify(value)}\n`);
    await this.#file.appendFile(line);
    this.#size += line.length;
  }

  /** A writer that was killed may have left half a line: nobody has counted on it. */
  async #cutHalfALine() {
    const { size } = await this.#file.stat();
    let tail = Buffer.alloc(0);
    let from = size;
    let lines = [];
    while (from > 0 && lines.length < 3) {
      const length = Math.min(CHUNK, from);
      from -= length;
      const chunk = Buffer.alloc(length);
      await this.#file.read(chunk, 0, length, from);
      tail = Buffer.concat([chunk, tail]);
      lines = tail.toString('latin1').split('\n');
    }
    const half = Buffer.byteLength(lines.at(-1) ?? '', 'latin1');
    this.#size = size - half;
    if (half > 0) await this.#file.truncate(this.#size);
    const whole = lines.at(-2);
    if (whole) this.last = JSON.parse(Buffer.from(whole, 'latin1').toString('utf8'));
  }
}
