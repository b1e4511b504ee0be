import { accessSync, constants, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** A part of the control groups (of version 2) that somebody gave to this user. */
export interface Delegated {
  readonly root: string;
  /** What can be limited below it. */
  readonly controllers: readonly string[];
}

/** Why somebody who is not root has no control groups. */
export const notDelegated = 'control groups need root, or one that is delegated to this user';

const WANTED = ['memory', 'cpu', 'pids'] as const;

/**
 * The uppermost group around this process that its user may write to. A group that has processes itself limits
 * nothing below it: such a one freezes and ends sandboxes, and no more.
 */
export function delegatedToUs(): Delegated | null {
  const own = /^0::(\/.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1];
  const mount = mountOfVersion2();
  if (own === undefined || own.includes('..') || mount === undefined) return null;
  let root: string | null = null;
  for (let path = join(mount, own); path !== mount; path = dirname(path)) {
    if (!path.startsWith(`${mount}/`)) return null;
    if (isOurs(path)) root = path;
    else if (root !== null) break;
  }
  if (root === null) return null;
  for (const controller of wordsOf(join(root, 'cgroup.controllers'))) enable(root, controller);
  return { root, controllers: wordsOf(join(root, 'cgroup.subtree_control')) };
}

function enable(root: string, controller: string): void {
  if (!WANTED.some((wanted) => wanted === controller)) return;
  try {
    writeFileSync(join(root, 'cgroup.subtree_control'), `+${controller}`);
  } catch (fault) {
    // EBUSY while it has processes itself; what is enabled is read afterwards.
    if (!['EBUSY', 'EACCES', 'EPERM'].includes((fault as NodeJS.ErrnoException).code ?? ''))
      throw fault;
  }
}

const wordsOf = (file: string): string[] =>
  readFileSync(file, 'utf8').trim().split(/\s+/).filter(Boolean);

function isOurs(path: string): boolean {
  try {
    for (const name of ['', 'cgroup.procs', 'cgroup.subtree_control'])
      accessSync(join(path, name), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function mountOfVersion2(): string | undefined {
  for (const line of readFileSync('/proc/self/mountinfo', 'utf8').split('\n')) {
    const [place, kind] = line.split(' - ');
    if (kind?.startsWith('cgroup2 ')) return place?.split(' ')[4];
  }
  return undefined;
}
