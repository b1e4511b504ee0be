import { Failure } from '../failure';

export interface TarEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link' | 'other';
  readonly mode: number;
  readonly bytes: number;
  readonly target: string;
}

const block = 512;
const maxHeaderBytes = 1024 * 1024;
const kinds: Readonly<Record<string, TarEntry['kind']>> = {
  '0': 'file',
  '\0': 'file',
  '7': 'file',
  '2': 'link',
  '5': 'directory',
};

const malformed = () =>
  new Failure('the archive from the session is damaged', 'nothing more of it was unpacked');

/** Takes an archive apart: ustar, pax and GNU long names. Content not taken is skipped. */
export async function* tarEntries(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ readonly entry: TarEntry; content(): AsyncGenerator<Buffer> }> {
  const bytes = new Pieces(source);
  let extended: Record<string, string> = {};
  for (;;) {
    const header = await bytes.exactly(block);
    if (header.every((byte) => byte === 0)) return;
    checkSum(header);
    const size = numberIn(header, 124, 12);
    const type = String.fromCharCode(header[156] ?? 0);
    if (type === 'x' || type === 'g' || type === 'L' || type === 'K') {
      if (size > maxHeaderBytes) throw malformed();
      const record = await bytes.exactly(padded(size));
      const text = record.subarray(0, size);
      if (type === 'x') extended = { ...extended, ...recordsOf(text) };
      if (type === 'L') extended.path = untilNul(text);
      if (type === 'K') extended.linkpath = untilNul(text);
      continue;
    }
    const prefix = header.subarray(257, 262).toString() === 'ustar' ? textIn(header, 345, 155) : '';
    const name = textIn(header, 0, 100);
    const long = extended.size === undefined ? size : Number(extended.size);
    if (!Number.isSafeInteger(long) || long < 0) throw malformed();
    const kind = kinds[type] ?? 'other';
    // Only files have content: of anything else it would be read off for as long as it says.
    if (kind !== 'file' && long !== 0) throw malformed();
    const entry: TarEntry = {
      path: extended.path ?? (prefix === '' ? name : `${prefix}/${name}`),
      kind,
      mode: numberIn(header, 100, 8),
      bytes: kind === 'file' ? long : 0,
      target: extended.linkpath ?? textIn(header, 157, 100),
    };
    extended = {};
    let left = long;
    const next = async (): Promise<Buffer | null> => {
      if (left === 0) return null;
      const piece = await bytes.atMost(left);
      left -= piece.length;
      return piece;
    };
    yield {
      entry,
      async *content() {
        for (let piece = await next(); piece; piece = await next()) yield piece;
      },
    };
    while (await next());
    await bytes.exactly(padded(long) - long);
  }
}

class Pieces {
  private readonly source: AsyncIterator<Uint8Array>;
  private held = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.source = source[Symbol.asyncIterator]();
  }

  async exactly(count: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = count; left > 0; ) {
      const piece = await this.atMost(left);
      pieces.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(pieces);
  }

  /** At least one byte. */
  async atMost(count: number): Promise<Buffer> {
    while (this.held.length === 0) {
      const step = await this.source.next();
      if (step.done) throw malformed();
      this.held = Buffer.from(step.value);
    }
    const piece = this.held.subarray(0, count);
    this.held = this.held.subarray(piece.length);
    return piece;
  }
}

function checkSum(header: Buffer): void {
  let sum = 0;
  for (const [at, byte] of header.entries()) sum += at >= 148 && at < 156 ? 0x20 : byte;
  if (sum !== numberIn(header, 148, 8)) throw malformed();
}

const padded = (bytes: number): number => Math.ceil(bytes / block) * block;
const untilNul = (bytes: Buffer): string => bytes.toString('utf8').split('\0', 1)[0] ?? '';
const textIn = (header: Buffer, at: number, length: number): string =>
  untilNul(header.subarray(at, at + length));

function numberIn(header: Buffer, at: number, length: number): number {
  const text = textIn(header, at, length).trim();
  if (!/^[0-7]{0,12}$/.test(text)) throw malformed();
  return text === '' ? 0 : Number.parseInt(text, 8);
}

function recordsOf(bytes: Buffer): Record<string, string> {
  const found: Record<string, string> = {};
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(0x20, at);
    const length = Number(bytes.subarray(at, space).toString());
    if (
      space < 0 ||
      !Number.isInteger(length) ||
      length <= space - at ||
      at + length > bytes.length
    )
      throw malformed();
    const text = bytes.subarray(space + 1, at + length - 1).toString('utf8');
    const equals = text.indexOf('=');
    if (equals < 1) throw malformed();
    found[text.slice(0, equals)] = text.slice(equals + 1);
    at += length;
  }
  return found;
}
