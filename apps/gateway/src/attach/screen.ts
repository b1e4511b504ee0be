import { type IBuffer, Terminal } from '@xterm/headless';
import { MAX_SIDE, type Size } from './frames';
import { at, lastCellAgain, paintLines, type Style, styleOf } from './paint';
import { Unfinished } from './unfinished';

export const MAX_SCROLLBACK = 1000;
const MAX_TITLE_CHARS = 256;

/** A terminal that nobody looks at: it takes output and can say how it looks, as output again. */
export class Screen {
  private readonly terminal: Terminal;
  private readonly unfinished = new Unfinished();
  private title = '';

  constructor(size: Size) {
    this.terminal = new Terminal({
      ...within(size),
      scrollback: MAX_SCROLLBACK,
      allowProposedApi: true,
      logLevel: 'off',
    });
    this.terminal.onTitleChange((title) => {
      this.title = title;
    });
  }

  get size(): Size {
    const { cols, rows } = this.terminal;
    return { cols, rows };
  }

  /** As many as it may come to have. */
  get cells(): number {
    return this.terminal.cols * (this.terminal.rows + MAX_SCROLLBACK);
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
    const { buffer } = this.terminal;
    const { normal, alt } = internals(this.terminal)._bufferService.buffers;
    const text = [
      '\x1b[m\x1b[H',
      this.painted(buffer.normal, normal, scrollback),
      // Entering the other buffer saves this one's cursor.
      buffer.active.type === 'alternate'
        ? `\x1b[?1049h\x1b(B\x1b[m\x1b[2J${this.painted(buffer.alternate, alt, 0)}\x1b7\x1b(B`
        : '\x1b7\x1b(B',
      this.cursor(),
      this.modes(),
      ...(this.title === '' ? [] : [`\x1b]2;${titleText(this.title)}\x07`]),
    ].join('');
    return Buffer.concat([Buffer.from(text), this.unfinished.bytes]);
  }

  dispose(): void {
    this.terminal.dispose();
  }

  /** One of the two buffers: its lines, its scroll region, its saved cursor. */
  private painted(buffer: IBuffer, kept: BufferState, scrollback: number): string {
    const { rows } = this.terminal;
    const isWhole = kept.scrollTop === 0 && kept.scrollBottom === rows - 1;
    const isSaved = kept.savedX !== 0 || kept.savedY !== 0;
    return [
      paintLines(buffer, rows, scrollback),
      isWhole ? '\x1b[r' : `\x1b[${kept.scrollTop + 1};${kept.scrollBottom + 1}r`,
      ...(isSaved
        ? [at(Math.max(kept.savedY - kept.ybase, 0), kept.savedX), styleOf(kept.savedCurAttrData)]
        : ['\x1b[m\x1b[H']),
      kept.savedCharset?.q === LINE ? '\x1b(0' : '',
    ].join('');
  }

  /** The cursor, where it stands, and the pen. */
  private cursor(): string {
    const { active } = this.terminal.buffer;
    const { _bufferService, _inputHandler } = internals(this.terminal);
    const { cursorX: x, cursorY: y } = active;
    const { originMode } = this.terminal.modes;
    const top = originMode ? _bufferService.buffer.scrollTop : 0;
    return [
      originMode ? '\x1b[?6h' : '',
      x >= this.terminal.cols ? lastCellAgain(active, y, top) : at(y - top, x),
      styleOf(_inputHandler._curAttrData),
    ].join('');
  }

  private modes(): string {
    const { modes } = this.terminal;
    const { coreService, coreMouseService, _charsetService } = internals(this.terminal);
    const { cursorStyle, cursorBlink } = coreService.decPrivateModes;
    const set = (isSet: boolean, sequence: string) => (isSet ? sequence : '');
    return [
      set(_charsetService.charset?.q === LINE && _charsetService.glevel === 0, '\x1b(0'),
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

interface Charset {
  readonly q?: string;
}

interface BufferState {
  readonly ybase: number;
  readonly savedX: number;
  readonly savedY: number;
  readonly savedCurAttrData: Style;
  readonly savedCharset?: Charset;
  readonly scrollTop: number;
  readonly scrollBottom: number;
}

/** State that a terminal has and its public face does not show; the version is pinned. */
interface Internals {
  readonly _bufferService: {
    readonly buffer: BufferState;
    readonly buffers: { readonly normal: BufferState; readonly alt: BufferState };
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
    readonly charset?: Charset;
    readonly _charsets: readonly (Charset | undefined)[];
  };
  readonly _inputHandler: { readonly _curAttrData: Style };
}

const internals = (terminal: Terminal): Internals =>
  (terminal as unknown as { readonly _core: Internals })._core;
