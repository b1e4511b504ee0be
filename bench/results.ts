import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '@vmux/testing';
import { type Line, plot } from './plot';
import { figure } from './report';

/** What an aim asks of a figure. */
interface Aim {
  readonly key: string;
  readonly text: string;
  readonly meets: (value: number) => boolean;
  readonly aim: string;
}

const fast = (value: number): boolean => value <= 0.15;

const AIMS: readonly Aim[] = [
  aim('exec_vs_docker', 'exec of /bin/true ÷ `docker exec`, one each in turn', '≤ 0.15', fast),
  aim('exec_vs_docker_in_a_row', 'the same, ten in a row each', '≤ 0.15', fast),
  aim('create_vs_docker', 'create → first output ÷ `docker run`', '≤ 0.25', (v) => v <= 0.25),
  aim('logs_vs_docker', 'durable log throughput ÷ `docker logs -f`', '≥ 3', (v) => v >= 3),
  aim(
    'reconnect_ms_p50_at_100k',
    'reconnect to first byte, log of 100k events, ms',
    '≤ 10',
    (v) => v <= 10,
  ),
  aim(
    'exec_growth_1k_to_100k_events',
    'exec at 100k events ÷ at 1k events',
    '≈ 1',
    (v) => v < 1.25,
  ),
  aim(
    'exec_growth_1_to_100_sessions',
    'exec beside 99 idle sessions ÷ alone',
    '≈ 1',
    (v) => v < 1.25,
  ),
];

function aim(key: string, text: string, wanted: string, meets: Aim['meets']): Aim {
  return { key, text, aim: wanted, meets };
}

export interface Results {
  readonly facts: readonly string[];
  readonly figures: Readonly<Record<string, number>>;
  /** Title, p50, p99, ratio. */
  readonly rows: readonly (readonly string[])[];
  readonly notes: readonly string[];
  readonly byEvents: readonly Line[];
  readonly bySessions: readonly Line[];
}

/** RESULTS.md, the ratios first, and its plot. */
export function writeResults({ facts, figures, rows, notes, byEvents, bySessions }: Results): void {
  const table = (header: readonly string[], lines: readonly (readonly string[])[]) =>
    [header, header.map((_, at) => (at === 0 ? '---' : '---:')), ...lines]
      .map((line) => `| ${line.join(' | ')} |`)
      .join('\n');
  const ratios = AIMS.map(({ key, text, aim: wanted, meets }) => {
    const value = figures[key];
    if (value === undefined || Number.isNaN(value)) return [text, 'not measured', wanted, ''];
    return [text, figure(value), wanted, meets(value) ? 'met' : 'missed'];
  });
  const text = `# Benchmark

Written by \`npm run bench\` on ${new Date().toISOString().slice(0, 10)}. Everything was measured in one run, the rivals in
turn, so that whatever the machine did meanwhile befell all of them: read the ratios.

${table(['ratio, of medians within a round', 'here', 'aim', ''], ratios)}

![exec, by the length of the history and by the number of sessions](results.svg)

${table(['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'], rows)}

${notes.map((note) => `- ${note}`).join('\n')}

## Machine

${facts.map((each) => `- ${each}`).join('\n')}
`;
  writeFileSync(join(projectRoot(), 'bench/RESULTS.md'), text);
  const svg = plot([
    { title: 'exec, by events in the session', xs: 'events', ys: 'ms, p50', lines: byEvents },
    { title: 'exec, by sessions', xs: 'sessions', ys: 'ms, p50', lines: bySessions },
  ]);
  writeFileSync(join(projectRoot(), 'bench/results.svg'), svg);
}
