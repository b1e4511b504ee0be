import type { IBuffer, IBufferCell, IBufferLine } from '@xterm/headless';

/** How characters look, as cells and the terminal's pen know it. */
export interface Style {
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

export const at = (row: number, column: number): string => `\x1b[${row + 1};${column + 1}H`;

/** A terminal that is empty shows these lines afterwards; the cursor and the pen are anywhere. */
export function paintLines(buffer: IBuffer, rows: number, scrollback: number): string {
  const above = Math.min(scrollback, buffer.baseY);
  const history = Array.from({ length: above }, (_, line) =>
    paintRow(lineOf(buffer, buffer.baseY - above + line), null),
  );
  const scrolled = [
    ...history.map((line) => `${line}\x1b[m\r\n`),
    // What is above has to leave the screen by its upper edge.
    ...(above > 0 ? [at(rows - 1, 0), '\n'.repeat(Math.min(above, rows - 1))] : []),
  ];
  return `${scrolled.join('')}${paintScreen(buffer, rows)}`;
}

function paintScreen(buffer: IBuffer, rows: number): string {
  let painted = '';
  let wraps = false;
  for (let row = 0; row < rows; row += 1) {
    const line = lineOf(buffer, buffer.baseY + row);
    if (!line) continue;
    const next = row + 1 < rows ? lineOf(buffer, buffer.baseY + row + 1) : undefined;
    const follows = next?.isWrapped ? next : null;
    painted += `${wraps ? '' : at(row, 0)}${paintRow(line, follows)}`;
    wraps = follows !== null && wrapsInto(line, follows);
    // A character of two columns does not fit into the last one: it is written from there.
    if (wraps && isEmpty(lastOf(line))) painted += at(row, line.length - 1);
  }
  return painted;
}

function paintRow(line: IBufferLine | undefined, next: IBufferLine | null): string {
  if (!line) return '';
  let row = '';
  let pen = '';
  let blanks = 0;
  const end = next === null ? filledTo(line) : line.length;
  for (let column = 0; column < end; column += 1) {
    const cell = line.getCell(column);
    if (!cell) continue;
    const isBlank = isEmpty(cell) || isHalf(line, column);
    const style = isBlank ? blankOf(cell) : styleOf(cell);
    if (blanks > 0 && (!isBlank || style !== pen)) {
      row += skipped(blanks, pen);
      blanks = 0;
    }
    if (style !== pen) row += style;
    pen = style;
    if (isBlank) blanks += 1;
    else row += cell.getChars();
    if (!isBlank) column += cell.getWidth() - 1;
  }
  return blanks > 0 ? `${row}${skipped(blanks, pen)}` : row;
}

/** What is left of a character of two columns when something was put into its middle is not shown. */
const isHalf = (line: IBufferLine, column: number): boolean =>
  line.getCell(column)?.getWidth() === 2 && line.getCell(column + 1)?.getWidth() !== 0;

/** Cells that were never written have a background at most. */
const skipped = (count: number, pen: string): string =>
  pen === PLAIN ? `\x1b[${count}C` : `\x1b[${count}X\x1b[${count}C`;

/** Writing on leads into the next line by itself, as it once did. */
function wrapsInto(line: IBufferLine, next: IBufferLine): boolean {
  const first = next.getCell(0);
  if (!first || isEmpty(first)) return false;
  const last = lastOf(line);
  if (!isEmpty(last)) return true;
  return first.getWidth() === 2 && blankOf(last) === blankOf(first);
}

const lineOf = (buffer: IBuffer, line: number): IBufferLine | undefined => buffer.getLine(line);

function lastOf(line: IBufferLine): IBufferCell | undefined {
  const last = line.getCell(line.length - 1);
  return last?.getWidth() === 0 ? line.getCell(line.length - 2) : last;
}

const isEmpty = (cell: IBufferCell | undefined): boolean => !cell || cell.getChars() === '';

/** After the last cell that is not as in an empty terminal. */
function filledTo(line: IBufferLine): number {
  for (let column = line.length; column > 0; column -= 1) {
    const cell = line.getCell(column - 1);
    if (cell && (!isEmpty(cell) || cell.getWidth() === 0 || blankOf(cell) !== PLAIN)) return column;
  }
  return 0;
}

const PLAIN = '\x1b[0m';

function blankOf(cell: Style | undefined): string {
  if (!cell) return PLAIN;
  return `\x1b[${[0, ...backgroundOf(cell)].join(';')}m`;
}

/** From any pen to this one. */
export function styleOf(style: Style): string {
  const flags: readonly (readonly [number, number])[] = [
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
  const set = flags.filter(([, isSet]) => isSet).map(([code]) => code);
  return `\x1b[${[0, ...set, ...foregroundOf(style), ...backgroundOf(style)].join(';')}m`;
}

function foregroundOf(style: Style): number[] {
  const color = style.getFgColor();
  if (style.isFgRGB()) return [38, 2, ...rgbOf(color)];
  if (!style.isFgPalette()) return [];
  return color < 8 ? [30 + color] : color < 16 ? [82 + color] : [38, 5, color];
}

function backgroundOf(style: Style): number[] {
  const color = style.getBgColor();
  if (style.isBgRGB()) return [48, 2, ...rgbOf(color)];
  if (!style.isBgPalette()) return [];
  return color < 8 ? [40 + color] : color < 16 ? [92 + color] : [48, 5, color];
}

const rgbOf = (color: number): number[] => [
  (color >>> 16) & 0xff,
  (color >>> 8) & 0xff,
  color & 0xff,
];

/** A cursor that waits behind the last column gets there by writing into it again. */
export function lastCellAgain(buffer: IBuffer, row: number, top: number): string {
  const line = lineOf(buffer, buffer.baseY + row);
  const cell = line && lastOf(line);
  if (!line || !cell) return '';
  const column = line.length - (cell.getWidth() === 2 ? 2 : 1);
  return `${at(row - top, column)}${styleOf(cell)}${cell.getChars() || ' '}`;
}
