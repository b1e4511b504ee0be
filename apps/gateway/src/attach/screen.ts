import { SerializeAddon } from '@xterm/addon-serialize';
import { Terminal } from '@xterm/headless';
import { MAX_SIDE, type Size } from './frames';
import { Unfinished } from './unfinished';

export const MAX_SCROLLBACK = 1000;
const MAX_TITLE_CHARS = 256;

/** A terminal that nobody looks at: it takes output and can say how it looks, as output again. */
export class Screen {
  private readonly terminal: Terminal;
  private readonly serializer = new SerializeAddon();
  private readonly unfinished = new Unfinished();
  private title = '';

  constructor(size: Size) {
    this.terminal = new Terminal({
      ...within(size),
      scrollback: MAX_SCROLLBACK,
      allowProposedApi: true,
      logLevel: 'off',
    });
    this.terminal.loadAddon(this.serializer);
    this.terminal.onTitleChange((title) => {
      this.title = title;
    });
  }

  get size(): Size {
    const { cols, rows } = this.terminal;
    return { cols, rows };
  }

  write(bytes: Uint8Array): Promise<void> {
    this.unfinished.take(bytes);
    return new Promise((resolve) => this.terminal.write(bytes, resolve));
  }

  resize(size: Size): void {
    const { cols, rows } = within(size);
    this.terminal.resize(cols, rows);
  }

  /** What makes a terminal that was just reset and has this size look, and go on, like this one. */
  repaint(scrollback: number): Buffer {
    const text = [
      this.serializer.serialize({ scrollback, excludeModes: true }),
      this.placement(),
      this.modes(),
      ...(this.title === '' ? [] : [`\x1b]2;${titleText(this.title)}\x07`]),
    ].join('');
    return Buffer.concat([Buffer.from(text), this.unfinished.bytes]);
  }

  dispose(): void {
    this.terminal.dispose();
  }

  /** Scroll region, saved cursor and origin: setting them moves the cursor, which is put back. */
  private placement(): string {
    const { buffer } = internals(this.terminal)._bufferService;
    const { rows, cols } = this.terminal;
    const { originMode } = this.terminal.modes;
    const isWhole = buffer.scrollTop === 0 && buffer.scrollBottom === rows - 1;
    const isSaved = buffer.savedX !== 0 || buffer.savedY !== 0;
    if (isWhole && !isSaved && !originMode) return '';
    const cursor = (y: number, x: number) => `\x1b[${y + 1};${x + 1}H`;
    const top = originMode ? buffer.scrollTop : 0;
    const savedY = Math.max(buffer.savedY - buffer.ybase, 0);
    return [
      isSaved ? `${cursor(savedY, buffer.savedX)}\x1b7` : '',
      isWhole ? '' : `\x1b[${buffer.scrollTop + 1};${buffer.scrollBottom + 1}r`,
      originMode ? '\x1b[?6h' : '',
      cursor(buffer.y - top, Math.min(buffer.x, cols - 1)),
      buffer.x >= cols ? this.lastCellAgain() : '',
    ].join('');
  }

  /** A cursor that waits behind the last column gets there by writing into it. */
  private lastCellAgain(): string {
    const { active } = this.terminal.buffer;
    const line = active.getLine(active.baseY + active.cursorY);
    const last = line?.getCell(this.terminal.cols - 1);
    if (!line || !last) return '';
    const cell = last.getWidth() === 0 ? line.getCell(this.terminal.cols - 2) : last;
    if (!cell || cell.getChars() === '') return '';
    const back = cell.getWidth() === 2 ? '\x1b[D' : '';
    const now = internals(this.terminal)._inputHandler._curAttrData;
    return `${back}${styleOf(cell)}${cell.getChars()}${styleOf(now)}`;
  }

  private modes(): string {
    const { modes } = this.terminal;
    const { coreService, coreMouseService, _charsetService } = internals(this.terminal);
    const { cursorStyle, cursorBlink } = coreService.decPrivateModes;
    const set = (isSet: boolean, sequence: string) => (isSet ? sequence : '');
    return [
      set(_charsetService._charsets[0]?.q === LINE, '\x1b(0'),
      set(_charsetService._charsets[1]?.q === LINE, '\x1b)0'),
      set(_charsetService.glevel === 1, '\x0e'),
      set(modes.applicationCursorKeysMode, '\x1b[?1h'),
      set(modes.applicationKeypadMode, '\x1b='),
      set(modes.bracketedPasteMode, '\x1b[?2004h'),
      set(modes.sendFocusMode, '\x1b[?1004h'),
      set(modes.reverseWraparoundMode, '\x1b[?45h'),
      set(!modes.wraparoundMode, '\x1b[?7l'),
      set(modes.insertMode, '\x1b[4h'),
      MOUSE[modes.mouseTrackingMode] ?? '',
      MOUSE_ENCODING[coreMouseService.activeEncoding] ?? '',
      cursorStyle ? `\x1b[${CURSOR[cursorStyle] - (cursorBlink ? 1 : 0)} q` : '',
      set(coreService.isCursorHidden, '\x1b[?25l'),
    ].join('');
  }
}

/** A size may be anything up to 65535 by 65535: no screen that is looked at is so large. */
const within = ({ cols, rows }: Size): Size => ({
  cols: Math.min(cols, MAX_SIDE),
  rows: Math.min(rows, MAX_SIDE),
});

const titleText = (title: string): string =>
  [...title.slice(0, MAX_TITLE_CHARS)]
    .filter((char) => char >= ' ' && !(char >= '\x7f' && char <= '\x9f'))
    .join('');

const LINE = '─';
const MOUSE: Readonly<Record<string, string>> = {
  x10: '\x1b[?9h',
  vt200: '\x1b[?1000h',
  drag: '\x1b[?1002h',
  any: '\x1b[?1003h',
};
const MOUSE_ENCODING: Readonly<Record<string, string>> = {
  SGR: '\x1b[?1006h',
  SGR_PIXELS: '\x1b[?1016h',
};
/** The steady ones; one less blinks. */
const CURSOR = { block: 2, underline: 4, bar: 6 } as const;

interface Style {
  isBold(): number;
  isDim(): number;
  isItalic(): number;
  isUnderline(): number;
  isBlink(): number;
  isInverse(): number;
  isInvisible(): number;
  isStrikethrough(): number;
  isOverline(): number;
  isFgRGB(): boolean;
  isBgRGB(): boolean;
  isFgPalette(): boolean;
  isBgPalette(): boolean;
  getFgColor(): number;
  getBgColor(): number;
}

function styleOf(style: Style): string {
  const flags: readonly [number, number][] = [
    [1, style.isBold()],
    [2, style.isDim()],
    [3, style.isItalic()],
    [4, style.isUnderline()],
    [5, style.isBlink()],
    [7, style.isInverse()],
    [8, style.isInvisible()],
    [9, style.isStrikethrough()],
    [53, style.isOverline()],
  ];
  const codes = [0, ...flags.filter(([, isSet]) => isSet).map(([code]) => code)];
  if (style.isFgRGB()) codes.push(38, 2, ...rgbOf(style.getFgColor()));
  else if (style.isFgPalette()) codes.push(38, 5, style.getFgColor());
  if (style.isBgRGB()) codes.push(48, 2, ...rgbOf(style.getBgColor()));
  else if (style.isBgPalette()) codes.push(48, 5, style.getBgColor());
  return `\x1b[${codes.join(';')}m`;
}

const rgbOf = (color: number): number[] => [
  (color >>> 16) & 0xff,
  (color >>> 8) & 0xff,
  color & 0xff,
];

/** State that a terminal has and its public face does not show; the version is pinned. */
interface Internals {
  readonly _bufferService: {
    readonly buffer: {
      readonly x: number;
      readonly y: number;
      readonly ybase: number;
      readonly savedX: number;
      readonly savedY: number;
      readonly scrollTop: number;
      readonly scrollBottom: number;
    };
  };
  readonly coreService: {
    readonly isCursorHidden: boolean;
    readonly decPrivateModes: {
      readonly cursorStyle?: keyof typeof CURSOR;
      readonly cursorBlink?: boolean;
    };
  };
  readonly coreMouseService: { readonly activeEncoding: string };
  readonly _charsetService: {
    readonly glevel: number;
    readonly _charsets: readonly ({ readonly q?: string } | undefined)[];
  };
  readonly _inputHandler: { readonly _curAttrData: Style };
}

const internals = (terminal: Terminal): Internals =>
  (terminal as unknown as { readonly _core: Internals })._core;
