import { Terminal } from '@xterm/headless';
import fc from 'fast-check';
import { pictureOf } from '../../../test/support/terminal-client';
import type { Size } from '../src/attach/frames';
import { Screen } from '../src/attach/screen';
import { Unfinished } from '../src/attach/unfinished';

const RUNS = process.env.PROPERTY_RUNS
  ? { numRuns: Number(process.env.PROPERTY_RUNS) }
  : { numRuns: 150, seed: 20_261_118 };
const SIZE: Size = { cols: 20, rows: 6 };

const written = (terminal: Terminal, bytes: Uint8Array) =>
  new Promise<void>((resolve) => terminal.write(bytes, resolve));

const fresh = ({ cols, rows }: Size) => {
  const terminal = new Terminal({ cols, rows, allowProposedApi: true, scrollback: 1000 });
  const titles: string[] = [];
  terminal.onTitleChange((title) => titles.push(title));
  return { terminal, titles };
};

/** What a terminal that has been there all along shows after all of it. */
async function original(pieces: readonly Buffer[], size = SIZE) {
  const { terminal, titles } = fresh(size);
  for (const piece of pieces) await written(terminal, piece);
  return { picture: pictureOf(terminal), title: titles.at(-1) ?? '' };
}

/** What a terminal shows that came in the middle and was repainted. */
async function repainted(before: Buffer, after: Buffer, size = SIZE) {
  const screen = new Screen(size);
  await screen.write(before);
  const { terminal, titles } = fresh(screen.size);
  await written(terminal, screen.repaint(0));
  screen.dispose();
  await written(terminal, after);
  return { picture: pictureOf(terminal), title: titles.at(-1) ?? '' };
}

const agree = async (before: string | Buffer, after: string | Buffer = '') => {
  const [first, second] = [Buffer.from(before as string), Buffer.from(after as string)];
  expect(await repainted(first, second)).toEqual(await original([first, second]));
};

describe('A screen', () => {
  it.each([
    ['text that wraps', 'a long line that is wider than the screen\r\nnext'],
    ['a cursor that waits behind the last column', 'x'.repeat(20)],
    ['colours and attributes', '\x1b[1;31mred\x1b[0;48;2;1;2;3mback\x1b[38;5;200;3;4;7;9mx'],
    ['a coloured line', 'top\r\n\x1b[44m\x1b[2Kblue\x1b[5;10H'],
    ['wide characters', '漢字カナ 🎉 é\u0301'],
    ['the alternate screen', 'before\x1b[?1049h\x1b[2J\x1b[3;3Hfull\x1b[1;1H'],
    [
      'modes of keys, paste, mouse and focus',
      '\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?1004h',
    ],
    ['a scroll region', '1\r\n2\r\n3\r\n4\r\n5\r\n6\x1b[2;4r\x1b[4;1H'],
    ['origin mode', '\x1b[2;4r\x1b[?6h\x1b[2;5Hhere'],
    ['line drawing', '\x1b(0lqqk'],
    ['a title', '\x1b]0;a title\x07$ '],
    ['scrolled text', Array.from({ length: 30 }, (_, n) => `line ${n}`).join('\r\n')],
  ])('is repainted with %s', async (_, before) => {
    await agree(before);
    await agree(before, 'and \x1b[Kmore\r\n\n\n\nqqx\x1b[6n\x1b[1;1Hq');
  });

  it('hands over a character or a sequence that has only begun', async () => {
    const whole = Buffer.from(
      'a漢🎉\x1b[1;38;5;196mred\x1b]2;tit\x07\x1b(0q\x1bPq#0\x1b\\z\x1b[?1049hx',
    );
    for (let at = 0; at <= whole.length; at += 1)
      await agree(whole.subarray(0, at), whole.subarray(at));
  });

  it('keeps a cursor that is hidden, and its shape', async () => {
    const screen = new Screen(SIZE);
    await screen.write(Buffer.from('\x1b[?25l\x1b[4 q'));
    const repaint = screen.repaint(0).toString();
    expect(repaint).toContain('\x1b[?25l');
    expect(repaint).toContain('\x1b[4 q');
    await screen.write(Buffer.from('\x1b[?25h\x1b[5 q'));
    const again = screen.repaint(0).toString();
    expect(again).not.toContain('\x1b[?25l');
    expect(again).toContain('\x1b[5 q');
    screen.dispose();
  });

  const move = fc
    .tuple(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 24 }))
    .map(([row, column]) => `\x1b[${row};${column}H`);
  const style = fc
    .subarray(['0', '1', '3', '4', '7', '31', '42', '38;5;99', '48;2;9;8;7', '39', '49'], {
      minLength: 1,
    })
    .map((codes) => `\x1b[${codes.join(';')}m`);
  const piece = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom('a', 'word ', '漢', '🎉', 'x'.repeat(7), '\u00e9') },
    { weight: 3, arbitrary: fc.constantFrom('\r\n', '\n', '\r', '\t', '\b') },
    { weight: 3, arbitrary: move },
    { weight: 3, arbitrary: style },
    {
      weight: 3,
      arbitrary: fc.constantFrom(
        ...['\x1b[K', '\x1b[1K', '\x1b[2K', '\x1b[J', '\x1b[2J', '\x1b[L', '\x1b[M', '\x1b[3X'],
        ...['\x1b[2P', '\x1b[3@', '\x1bM', '\x1bD', '\x1b[S', '\x1b[T', '\x1b[2A', '\x1b[3C'],
      ),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        ...['\x1b[?1049h', '\x1b[?1049l', '\x1b[?2004h', '\x1b[?2004l', '\x1b[?1h', '\x1b[?7l'],
        ...['\x1b[?7h', '\x1b[4h', '\x1b[4l', '\x1b[2;5r', '\x1b[r', '\x1b]0;t\x07', '\x1b[?1003h'],
        ...['\x1b(0', '\x1b(B', '\x1b[?25l', '\x1b=', '\x1b>', '\x1b[!p', '\x1bc'],
      ),
    },
  );
  const text = (maxLength: number) =>
    fc.array(piece, { maxLength, size: 'max' }).map((pieces) => Buffer.from(pieces.join('')));

  it('goes on like the original, wherever it was taken over', async () => {
    await fc.assert(
      fc.asyncProperty(text(120), text(20), fc.nat(), async (before, after, cut) => {
        const whole = Buffer.concat([before, after]);
        const at = whole.length === 0 ? 0 : cut % (whole.length + 1);
        await agree(whole.subarray(0, at), whole.subarray(at));
      }),
      RUNS,
    );
  });

  it('of any size costs a bounded one', () => {
    const screen = new Screen({ cols: 65_535, rows: 65_535 });
    expect(screen.size).toEqual({ cols: 1000, rows: 1000 });
    screen.resize({ cols: 40_000, rows: 2 });
    expect(screen.size).toEqual({ cols: 1000, rows: 2 });
    screen.dispose();
  });
});

describe('What is unfinished', () => {
  const left = (...pieces: readonly (string | Buffer)[]) => {
    const unfinished = new Unfinished();
    for (const piece of pieces) unfinished.take(Buffer.from(piece as string));
    return unfinished.bytes.toString('latin1');
  };

  it('is the sequence that has begun, however it was cut', () => {
    expect(left('abc')).toBe('');
    expect(left('abc\x1b')).toBe('\x1b');
    expect(left('abc\x1b[1;3', '1')).toBe('\x1b[1;31');
    expect(left('abc\x1b[1;3', '1m')).toBe('');
    expect(left('\x1b]0;tit', 'le\x1b')).toBe('\x1b');
    expect(left('\x1b]0;title\x1b\\')).toBe('');
    expect(left('\x1b]0;title\x07x')).toBe('');
    expect(left('\x1bP1$r', '0m')).toBe('\x1bP1$r0m');
    expect(left('\x1b[1\x18x')).toBe('');
    expect(left(Buffer.from([0xe6, 0xbc]))).toBe('\xe6\xbc');
    expect(left(Buffer.from([0xe6, 0xbc]), Buffer.from([0xa2]))).toBe('');
    expect(left(Buffer.from([0xc2, 0x9b, 0x31]))).toBe('\xc2\x9b1');
  });

  it('is bounded', () => {
    expect(left('\x1b]52;c;', 'A'.repeat(10_000_000)).length).toBe(64 * 1024);
  });
});
