import { access, constants, mkdtemp, readFile, rm } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { delimiter, join } from 'node:path';
import { DriverRefused } from '@vmux/runner-kit';
import { type Delegated, delegatedToUs } from './ns-delegated';
import { PROGRAM_PATH, runProgram } from './ns-launcher';

/** Where the ids begin that the administrator lent to this user by /etc/subuid and /etc/subgid. */
export interface LentIds {
  readonly uid: number;
  readonly gid: number;
}

/** Who makes the sandboxes: root, or somebody with ids to give away, or somebody with their own alone. */
export interface NsUser {
  readonly isRoot: boolean;
  readonly lent: LentIds | null;
  /** For who is not root. */
  readonly delegated: Delegated | null;
}

export const isRoot = (): boolean => process.getuid?.() === 0;

const IDS = 65_536;

/** Whether the ids that are lent can be used is found by using them, on a directory that is the caller's. */
export async function thisUser(launcher: string, directory: string): Promise<NsUser> {
  if (isRoot()) return { isRoot: true, lent: null, delegated: null };
  const lent = await lentIds();
  const delegated = delegatedToUs();
  if (!lent) return { isRoot: false, lent, delegated };
  const trial = await mkdtemp(join(directory, 'lent-'));
  try {
    await runProgram(launcher, ['own', ...lentArguments(lent), `--dir=${trial}`]);
    await runProgram(launcher, ['drop', ...lentArguments(lent), `--dir=${trial}`]);
    return { isRoot: false, lent, delegated };
  } catch (fault) {
    if (!(fault instanceof DriverRefused)) throw fault;
    await rm(trial, { recursive: true, force: true });
    return { isRoot: false, lent: null, delegated };
  }
}

export const lentArguments = (lent: LentIds | null | undefined): readonly string[] =>
  lent ? [`--lent-uid=${lent.uid}`, `--lent-gid=${lent.gid}`] : [];

async function lentIds(): Promise<LentIds | null> {
  if (!(await isInstalled('newuidmap')) || !(await isInstalled('newgidmap'))) return null;
  const uid = await firstOf('/etc/subuid');
  const gid = await firstOf('/etc/subgid');
  return uid === undefined || gid === undefined ? null : { uid, gid };
}

async function firstOf(file: string): Promise<number | undefined> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const names = [String(process.getuid?.()), nameOfUser()];
  for (const line of text.split('\n')) {
    const [name = '', start, count] = line.split(':');
    if (name && names.includes(name) && Number(start) > 0 && Number(count) >= IDS)
      return Number(start);
  }
  return undefined;
}

function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    // Nobody is called that: an id without an account.
    return '';
  }
}

async function isInstalled(program: string): Promise<boolean> {
  for (const directory of PROGRAM_PATH.split(delimiter)) {
    const found = await access(join(directory, program), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return true;
  }
  return false;
}
