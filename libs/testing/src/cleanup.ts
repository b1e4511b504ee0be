import { spawn } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
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

/** An empty directory, removed by `releaseAll` or when this process dies. */
export function temporaryDirectory(name = 'test'): string {
  const path = mkdtempSync(join(realpathSync(tmpdir()), `vmux-${name}-`));
  const callOff = whenThisProcessDies('rm -rf -- "$0"', path);
  releaseLater(() => {
    rmSync(path, { recursive: true, force: true, maxRetries: 3 });
    callOff();
  });
  return path;
}
