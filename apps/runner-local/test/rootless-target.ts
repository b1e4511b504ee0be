import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from '@vmux/testing';
import type { NsDriverOptions } from '../src/drivers/ns-driver';
import { isRoot, nsOptions } from './ns-target';

/** Somebody who is not root, and whether ids are lent to them. */
export interface OtherUser {
  readonly uid: number;
  /** A directory that is laid over /etc, for their processes alone. */
  readonly etc: string | null;
  /** Where their processes begin. */
  readonly cgroup?: string;
}

/** Of the account that every Linux has for nobody in particular. */
const NOBODY = 65_534;
const FIRST_LENT = 0x2000_0000;

export const withOneId = (): OtherUser => ({ uid: NOBODY, etc: null });

export function withLentIds(): OtherUser {
  const etc = join(temporaryDirectory('etc'), 'etc');
  mkdirSync(etc);
  for (const name of ['subuid', 'subgid'])
    writeFileSync(join(etc, name), `nobody:${FIRST_LENT}:65536\n`, { mode: 0o644 });
  chmodSync(etc, 0o755);
  return { uid: NOBODY, etc };
}

/** What a test that is root starts so is started by that user. */
export function asUser(
  { uid, etc, cgroup }: OtherUser,
  program: string,
  args: readonly string[],
): { readonly command: string; readonly args: string[] } {
  const id = String(uid);
  const user = ['setpriv', '--reuid', id, '--regid', id, '--clear-groups', '--inh-caps=-all'];
  const own = [...user, '--', program, ...args];
  const lay = etc === null ? '' : `mount -t overlay overlay -o 'lowerdir=${etc}:/etc' /etc && `;
  const enter = cgroup === undefined ? '' : `echo $$ > '${cgroup}/cgroup.procs' && `;
  const inside = ['sh', '-c', `${lay}${enter}exec "$@"`, 'sh', ...own];
  return { command: 'unshare', args: ['--mount', '--propagation', 'private', ...inside] };
}

/** A data directory of theirs, removed like root's. */
export function rootlessOptions({ uid }: OtherUser): NsDriverOptions {
  const options = nsOptions();
  chownSync(options.dataDir, uid, uid);
  return options;
}

export function whyNotRootless(user: () => OtherUser): string {
  if (!isRoot) return 'becoming somebody who is not root needs root on Linux';
  const { command, args } = asUser(user(), 'unshare', ['-U', '-r', '-m', 'true']);
  const tried = spawnSync(command, args, { encoding: 'utf8' });
  if (tried.status === 0) return '';
  return `no user namespaces without root here: ${(tried.stderr || String(tried.error)).trim()}`;
}

export const hasIdTools = existsSync('/usr/bin/newuidmap') && existsSync('/usr/bin/newgidmap');
