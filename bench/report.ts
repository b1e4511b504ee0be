/** What every bench shares: `--json`, medians, and one table on the terminal. */
export const wantsJson = (): boolean => process.argv.includes('--json');

export function quantile(values: readonly number[], fraction: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))];
  if (value === undefined) throw new Error('nothing was measured');
  return value;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** Three significant digits, and whole numbers from a hundred on. */
export const figure = (value: number): string =>
  Math.abs(value) >= 100
    ? Math.round(value).toLocaleString('en-US')
    : String(Number(value.toPrecision(3)));

/** The first column is text, the others are set to the right. */
export function printTable(header: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = header.map((_, column) =>
    Math.max(...[header, ...rows].map((row) => (row[column] ?? '').length)),
  );
  const line = (row: readonly string[]) =>
    widths
      .map((width, column) => {
        const cell = row[column] ?? '';
        return column === 0 ? cell.padEnd(width) : cell.padStart(width);
      })
      .join('   ')
      .trimEnd();
  console.log(line(header));
  console.log(widths.map((width) => '-'.repeat(width)).join('   '));
  for (const row of rows) console.log(line(row));
}

/** The last line of a bench that was asked for `--json`: one object of named figures. */
export function printJson(figures: Readonly<Record<string, number>>): void {
  const short = Object.entries(figures).map(([name, value]) => [
    name,
    Number(value.toPrecision(4)),
  ]);
  console.log(JSON.stringify(Object.fromEntries(short)));
}
