import { execFileSync } from 'node:child_process';
import { closeSync, fdatasyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { temporaryDirectory } from '@vmux/testing';
import { figure, median } from './report';

/** What the figures depend on beside the code. */
export function machineFacts(): string[] {
  const [cpu] = cpus();
  return [
    `${cpus().length} × ${cpu?.model.trim() || 'CPU'}, ${figure(totalmem() / 2 ** 30)} GiB of memory, Linux ${release()}, Node ${process.version}`,
    `a sync of 4 KiB to the disk takes ${figure(syncMs())} ms; load over the last minute ${figure(loadavg()[0] ?? 0)}`,
  ];
}

/** Overwriting, as the event store's log does. */
function syncMs(): number {
  const fd = openSync(join(temporaryDirectory('sync'), 'file'), 'w');
  const page = Buffer.alloc(4096, 1);
  const times: number[] = [];
  for (let at = 0; at < 64; at++) writeSync(fd, page, 0, page.length, at * page.length);
  fdatasyncSync(fd);
  for (let at = 0; at < 64; at++) {
    writeSync(fd, page, 0, page.length, at * page.length);
    const started = performance.now();
    fdatasyncSync(fd);
    times.push(performance.now() - started);
  }
  closeSync(fd);
  return median(times);
}

/** What the processes take together; what they share is counted once. */
export const memoryMiB = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => sum + Number(/^Pss:\s+(\d+)/m.exec(rollup(pid))?.[1] ?? 0), 0) / 1024;

const rollup = (pid: number): string => readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');

const LOOK_MS = 500;
const IDLE_SHARE = 0.05;
const IDLE_WITHIN_MS = 120_000;

/** Until the processes hardly work any more: what was put into the store is copied and listed beside it. */
export async function untilIdle(pids: readonly number[]): Promise<void> {
  const deadline = Date.now() + IDLE_WITHIN_MS;
  for (let before = processorMs(pids); Date.now() < deadline; ) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const now = processorMs(pids);
    if (now - before < LOOK_MS * IDLE_SHARE) return;
    before = now;
  }
  throw new Error(`the stack is still busy after ${IDLE_WITHIN_MS / 1000} s`);
}

const QUIET_SHARE = 0.1;
const QUIET_WITHIN_MS = 30_000;

/**
 * Everything is written, and until the whole machine hardly works any more, the kernel on removed files and layers
 * included; a machine that others keep busy is not waited for any longer.
 */
export async function untilQuiet(): Promise<void> {
  execFileSync('sync');
  const deadline = Date.now() + QUIET_WITHIN_MS;
  for (let before = ticks(); Date.now() < deadline; ) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const now = ticks();
    if (now.busy - before.busy < QUIET_SHARE * (now.all - before.all)) return;
    before = now;
  }
}

/** Of all processors: user, nice, system, idle, iowait, irq, softirq, steal. */
function ticks(): { readonly busy: number; readonly all: number } {
  const [, line = ''] = /^cpu +(.*)$/m.exec(readFileSync('/proc/stat', 'utf8')) ?? [];
  const fields = line.split(' ').slice(0, 8).map(Number);
  const all = fields.reduce((sum, each) => sum + each, 0);
  return { busy: all - (fields[3] ?? 0), all };
}

/** By the kernel's clock of 100 ticks a second. */
const processorMs = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return sum + (Number(fields[11]) + Number(fields[12])) * 10;
  }, 0);
