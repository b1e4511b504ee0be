import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import { projectRoot, releaseLater, whenThisProcessDies } from '@vmux/testing';
import { NsDriver, type NsDriverOptions } from '../src/drivers/ns-driver';
import { keyOf } from '../src/drivers/ns-store';

const native = join(projectRoot(), 'dist/native');

/**
 * A driver of its own data directory and cgroup: nothing of one test file is seen by another. Sandboxes that
 * are left are destroyed even when this process is killed.
 */
export function nsOptions(): NsDriverOptions {
  const dataDir = mkdtempSync('/tmp/vmux-ns-');
  const launcherPath = join(native, 'vmux-ns');
  const cgroupParent = basename(dataDir).toLowerCase();
  const destroyAll = `for d in "$0"/s/*; do [ -d "$d" ] && '${launcherPath}' destroy --dir="$d" --name="s-\${d##*/}" --cgroup-parent='${cgroupParent}'; done`;
  const unmount = 'if mountpoint -q "$0/store"; then umount "$0/store"; fi';
  const callOff = whenThisProcessDies(`${destroyAll}; ${unmount}; rm -rf -- "$0"`, dataDir);
  releaseLater(() => {
    // What a failed test did not come to destroy.
    execFileSync('sh', ['-c', `${destroyAll}; ${unmount}; true`, dataDir], { stdio: 'ignore' });
    rmSync(dataDir, { recursive: true, force: true });
    callOff();
  });
  const supervisorPath = join(native, 'vmux-supervisor');
  return { dataDir, launcherPath, supervisorPath, cgroupParent };
}

export const newNsDriver = (options: NsDriverOptions = nsOptions()): NsDriver =>
  new NsDriver(options);

/** The sandbox's first process, as the host numbers it. */
export function firstProcessOf(options: NsDriverOptions, id: SandboxId): number {
  const text = readFileSync(join(options.dataDir, 's', keyOf(id), 'pid'), 'utf8');
  return Number(text.split(' ')[0]);
}

export const isRoot = process.platform === 'linux' && process.getuid?.() === 0;
