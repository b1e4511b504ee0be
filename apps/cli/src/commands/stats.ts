import type { SessionStats } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print, table } from '../terminal/output';
import { StatusLine } from '../terminal/status-line';

const options = {
  follow: { type: 'boolean', short: 'f' },
  every: { type: 'string' },
  json: { type: 'boolean' },
} as const;

const shortestMs = 100;

/** What a sandbox uses: once, or again and again. Looking does not wake it. */
export async function stats(args: readonly string[]): Promise<number> {
  const given = parsed('stats', args, options);
  const name = onlyName(given, 'stats');
  const everyMs = given.duration('every') ?? 1000;
  if (everyMs < shortestMs) throw new UsageError('--every takes 100ms or more');
  const sandbox = await findSession(await findServer(), name);
  const isLive = given.has('follow');
  const line = new StatusLine();
  let before = await sandbox.stats();
  for (;;) {
    // How much CPU is used now takes two looks.
    await new Promise((done) => setTimeout(done, isLive ? everyMs : shortestMs));
    const now = await sandbox.stats();
    const cpu = cpuBetween(before, now);
    before = now;
    if (given.has('json')) await print(jsonText({ ...now, cpu: { ...now.cpu, cores: cpu } }));
    else if (isLive && process.stderr.isTTY) line.show(cellsOf(now, cpu).join('  '));
    else await print(table([titles, cellsOf(now, cpu)].slice(isLive ? 1 : 0)));
    if (!isLive) return 0;
  }
}

const titles = ['CPU', 'MEMORY', 'DISK', 'PROCESSES', 'UP'];

/** In cores; null when it cannot be told. */
function cpuBetween(before: SessionStats, now: SessionStats): number | null {
  const [from, to] = [before.cpu.usedMs, now.cpu.usedMs];
  const passed = Date.parse(now.at) - Date.parse(before.at);
  if (from === null || to === null || passed <= 0 || before.epoch !== now.epoch) return null;
  return Math.round((1000 * Math.max(0, to - from)) / passed) / 1000;
}

const cellsOf = ({ memory, disk, processes, uptimeMs }: SessionStats, cpu: number | null) => [
  cpu === null ? '-' : `${(100 * cpu).toFixed(0)} %`,
  ofLimit(memory.bytes, memory.limitBytes),
  ofLimit(disk.usedBytes, disk.totalBytes),
  processes.count === null ? '-' : String(processes.count),
  uptimeMs === null ? '-' : `${Math.floor(uptimeMs / 1000)} s`,
];

const ofLimit = (value: number | null, limit: number | null): string =>
  value === null ? '-' : `${sized(value)}${limit === null ? '' : ` of ${sized(limit)}`}`;

function sized(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  const value = bytes / 1024 ** power;
  return `${value >= 100 || power === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[power]}`;
}
