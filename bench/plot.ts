export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

const WIDTH = 360;
const HEIGHT = 240;
const LEFT = 48;
const BOTTOM = 36;
const TOP = 28;
const COLOURS = ['#2563eb', '#d97706', '#059669'];

/** Charts side by side, each with logarithmic x and linear y from zero: what is flat looks flat. */
export const plot = (
  charts: readonly { title: string; xs: string; ys: string; lines: readonly Line[] }[],
): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH * charts.length}" height="${HEIGHT}" font-family="sans-serif" font-size="11">
<title>exec, by the length of the history and by the number of sessions</title>
<rect width="100%" height="100%" fill="white"/>
${charts.map((chart, at) => `<g transform="translate(${at * WIDTH} 0)">${drawn(chart)}</g>`).join('\n')}
</svg>
`;

function drawn({
  title,
  xs,
  ys,
  lines,
}: {
  title: string;
  xs: string;
  ys: string;
  lines: readonly Line[];
}): string {
  const points = lines.flatMap((line) => line.points);
  if (points.length === 0) return `<text x="${LEFT}" y="18">${title}: not measured</text>`;
  const logs = points.map(([x]) => Math.log10(x));
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  const top = Math.max(...points.map(([, y]) => y)) * 1.15;
  const x = (value: number) =>
    LEFT + ((Math.log10(value) - low) / Math.max(high - low, 1e-9)) * (WIDTH - LEFT - 24);
  const y = (value: number) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const ticks = [...new Set(points.map(([at]) => at))];
  return [
    `<text x="${LEFT}" y="18" font-weight="bold">${title}</text>`,
    `<path d="M${LEFT} ${TOP}V${y(0)}H${WIDTH - 16}" fill="none" stroke="#888"/>`,
    ...[0, top / 2, top].map(
      (value) =>
        `<text x="${LEFT - 4}" y="${y(value) + 4}" text-anchor="end">${value.toPrecision(2)}</text>`,
    ),
    ...ticks.map(
      (value) =>
        `<text x="${x(value)}" y="${HEIGHT - BOTTOM + 14}" text-anchor="middle">${value.toLocaleString('en-US')}</text>`,
    ),
    `<text x="${WIDTH / 2}" y="${HEIGHT - 6}" text-anchor="middle">${xs}</text>`,
    `<text x="10" y="${TOP - 12}">${ys}</text>`,
    ...lines.flatMap((line, at) => curve(line, COLOURS[at % COLOURS.length] ?? 'black', at, x, y)),
  ].join('\n');
}

const curve = (
  { name, points }: Line,
  colour: string,
  at: number,
  x: (value: number) => number,
  y: (value: number) => number,
): string[] => [
  `<polyline points="${points.map((point) => `${x(point[0])},${y(point[1])}`).join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>`,
  ...points.map(
    (point) => `<circle cx="${x(point[0])}" cy="${y(point[1])}" r="3" fill="${colour}"/>`,
  ),
  `<text x="${WIDTH - 20}" y="${TOP + 4 + at * 14}" text-anchor="end" fill="${colour}">${name}</text>`,
];
