import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

type Release = () => Promise<void> | void;

const held = new Set<Release>();

/** Remembers what to release at the end; the returned function forgets it again. */
export function releaseLater(release: Release): () => void {
  held.add(release);
  return () => held.delete(release);
}

/**
 * Stops every process and removes every directory that this module's functions made, the newest first.
 * Every test file that uses them says `afterAll(releaseAll)`.
 */
export async function releaseAll(): Promise<void> {
  const faults: unknown[] = [];
  for (const release of [...held].reverse()) {
    held.delete(release);
    try {
      await release();
    } catch (fault) {
      faults.push(fault);
    }
  }
  if (faults.length > 0) throw new AggregateError(faults, 'not everything could be released');
}

/**
 * Runs the shell command when this process is gone, however it went: a shell waits for the end of a pipe
 * that closes with this process. The returned function calls it off.
 */
export function whenThisProcessDies(command: string, argument: string): () => void {
  const script = `trap '' HUP INT TERM; read -r done_by_itself || { ${command}; }`;
  const guard = spawn('/bin/sh', ['-c', script, argument], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  guard.unref();
  const { stdin } = guard;
  if ('unref' in stdin && typeof stdin.unref === 'function') stdin.unref();
  stdin.on('error', () => undefined);
  return () => void stdin.end('done\n');
}

/** What a killed runner left mounted below the directory; the newest first. */
const UNMOUNT =
  'tac /proc/self/mounts | while read -r _ at _; do case "$at" in "$0"/*) umount -- "$at" || umount -l -- "$at" ;; esac; done';

/** An empty directory, removed by `releaseAll` or when this process dies, with what is mounted below it. */
export function temporaryDirectory(name = 'test'): string {
  const path = mkdtempSync(join(realpathSync(tmpdir()), `vmux-${name}-`));
  const callOff = whenThisProcessDies(`${UNMOUNT}; rm -rf -- "$0"`, path);
  releaseLater(() => {
    if (readFileSync('/proc/self/mounts', 'utf8').includes(` ${path}/`))
      spawnSync('/bin/sh', ['-c', UNMOUNT, path], { stdio: 'ignore' });
    rmSync(path, { recursive: true, force: true, maxRetries: 8 });
    callOff();
  });
  return path;
}
