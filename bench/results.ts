import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '@vmux/testing';
import { type Aim, aim, atMost, type Measured, writePage } from './page';
import { type Line, plot } from './plot';

const isFlat = (value: number): boolean => value < 1.25;

const AIMS: readonly Aim[] = [
  atMost('exec_vs_docker', 'exec of /bin/true ÷ docker’s by its API, one each in turn', 0.15),
  atMost('exec_vs_docker_in_a_row', 'the same, ten in a row each', 0.15),
  atMost('exec_vs_docker_cli', 'exec of /bin/true ÷ `docker exec`, the command', 0.15),
  atMost('create_vs_docker', 'create → first output ÷ `docker run`', 0.25),
  aim('logs_vs_docker', 'durable log throughput ÷ `docker logs -f`', '≥ 3', (v) => v >= 3),
  atMost('reconnect_ms_p50_at_100k', 'reconnect to first byte, log of 100k events, ms', 10),
  aim('exec_growth_1k_to_100k_events', 'exec at 100k events ÷ at 1k events', '≈ 1', isFlat),
  aim('exec_growth_1_to_100_sessions', 'exec beside 99 idle sessions ÷ alone', '≈ 1', isFlat),
];

export interface Results extends Measured {
  readonly byEvents: readonly Line[];
  readonly bySessions: readonly Line[];
}

const PICTURE = {
  file: 'results.svg',
  text: 'exec, by the length of the history and by the number of sessions',
};

/** RESULTS.md, the ratios first, and its plot. */
export function writeResults({ byEvents, bySessions, ...measured }: Results): void {
  writePage({
    ...measured,
    ...{ file: 'RESULTS.md', title: 'Benchmark', command: 'npm run bench' },
    ...{ aims: AIMS, head: 'ratio, of medians within a round', picture: PICTURE },
  });
  const svg = plot([
    { title: 'exec, by events in the session', xs: 'events', ys: 'ms, p50', lines: byEvents },
    { title: 'exec, by sessions', xs: 'sessions', ys: 'ms, p50', lines: bySessions },
  ]);
  writeFileSync(join(projectRoot(), 'bench', PICTURE.file), svg);
}
