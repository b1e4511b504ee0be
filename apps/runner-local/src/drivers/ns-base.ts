import { randomBytes } from 'node:crypto';
import {
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  realpath,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { copyPublic, makeDirectory, writeEtc } from './ns-host-etc';
import { runProgram } from './ns-launcher';
import { isAlive, ownProcess } from './ns-store';
import { lentArguments, type NsUser } from './ns-user';

/** A tree of a sandbox: an overlay at `target` over the lower directories, the uppermost first. */
export interface NsTree {
  readonly target: string;
  readonly lowers: readonly string[];
}

export interface NsBase {
  /** Names the generated layers, which must stay while a sandbox uses them; null when there are none. */
  readonly generation: string | null;
  readonly trees: readonly NsTree[];
  /** Directories of the host of which a sandbox sees the named entries alone. */
  readonly only: readonly { readonly directory: string; readonly names: readonly string[] }[];
}

const TOP_LEVEL_PROGRAMS = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'] as const;
const USR = [
  ...TOP_LEVEL_PROGRAMS,
  'libexec',
  'share',
  'include',
  'src',
  'games',
  'local',
] as const;
const USR_LOCAL = [...TOP_LEVEL_PROGRAMS, 'libexec', 'share', 'include', 'src', 'games', 'man'];
const PACKAGE_DATABASES = [
  '/var/lib/dpkg',
  '/var/lib/apt',
  '/var/lib/rpm',
  '/var/lib/pacman',
] as const;
const EMPTY_DIRECTORIES: readonly (readonly [string, number])[] = [
  ['boot', 0o755],
  ['dev', 0o755],
  ['home', 0o755],
  ['media', 0o755],
  ['mnt', 0o755],
  ['opt', 0o755],
  ['proc', 0o555],
  ['root', 0o700],
  ['run', 0o755],
  ['run/lock', 0o1777],
  ['srv', 0o755],
  ['sys', 0o555],
  ['tmp', 0o1777],
  ['usr', 0o755],
  ['var', 0o755],
  ['var/backups', 0o755],
  ['var/cache', 0o755],
  ['var/cache/apt', 0o755],
  ['var/cache/apt/archives', 0o755],
  ['var/cache/apt/archives/partial', 0o700],
  ['var/cache/debconf', 0o755],
  ['var/lib', 0o755],
  ['var/lib/misc', 0o755],
  ['var/log', 0o755],
  ['var/log/apt', 0o755],
  ['var/mail', 0o2775],
  ['var/spool', 0o755],
  ['var/tmp', 0o1777],
  ['workspace', 0o755],
];

export interface BaseMaker {
  /** Of all generated layers. */
  readonly directory: string;
  readonly launcher: string;
  readonly user: NsUser;
}

/**
 * Makes a root out of the host's own programs: an allow-list, everything else is empty. The layers are
 * written anew for each driver, because what may not be shown is found by looking.
 */
export async function makeHostBase({ directory, launcher, user }: BaseMaker): Promise<NsBase> {
  const { generation, at } = await newGeneration(directory);
  const root = join(at, 'root');
  await makeDirectory(root, 0o755);
  for (const [path, mode] of EMPTY_DIRECTORIES) await makeDirectory(join(root, path), mode);
  await symlink('/run', join(root, 'var/run'));
  await symlink('/run/lock', join(root, 'var/lock'));
  await writeEtc(join(root, 'etc'));
  for (const file of ['config.dat', 'templates.dat'])
    await copyPublic(join('/var/cache/debconf', file), join(root, 'var/cache/debconf', file));

  const trees: NsTree[] = [{ target: '/', lowers: [root] }];
  const giveAway = (layer: string) =>
    runProgram(launcher, ['own', ...lentArguments(user.lent), `--dir=${layer}`]);
  const addMasked = async (target: string) => {
    const mask = join(at, `mask${target.replaceAll('/', '-')}`);
    await makeDirectory(join(root, target), 0o755);
    await runProgram(launcher, ['mask', `--dir=${target}`, `--out=${mask}`]);
    if (!user.isRoot && PACKAGE_DATABASES.some((each) => each === target))
      await copyFiles(target, mask);
    await giveAway(mask);
    trees.push({ target, lowers: [mask, target] });
  };
  await addMasked('/usr');
  for (const name of TOP_LEVEL_PROGRAMS) {
    const kind = await kindOf(join('/', name));
    if (kind === 'link') await symlink(await readlink(join('/', name)), join(root, name));
    else if (kind === 'directory') await addMasked(join('/', name));
  }
  for (const database of PACKAGE_DATABASES)
    if ((await kindOf(database)) === 'directory') await addMasked(database);
  await giveAway(root);
  return {
    generation,
    trees,
    only: [
      { directory: '/usr', names: USR },
      { directory: '/usr/local', names: USR_LOCAL },
    ],
  };
}

/** A package manager links its tables to keep them, which nobody may do with a file that is not theirs. */
async function copyFiles(from: string, into: string): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true }))
    if (entry.isFile() && (await kindOf(join(into, entry.name))) === undefined)
      await copyPublic(join(from, entry.name), join(into, entry.name));
}

/** A root directory that somebody built: used as it is, or without root as far as everyone may read it. */
export async function directoryBase(image: string, maker: BaseMaker): Promise<NsBase> {
  const whole = await realpath(image);
  const { directory, launcher, user } = maker;
  if (user.isRoot) return { generation: null, trees: [{ target: '/', lowers: [whole] }], only: [] };
  const { generation, at } = await newGeneration(directory);
  const mask = join(at, 'mask');
  await runProgram(launcher, ['mask', `--dir=${whole}`, `--out=${mask}`]);
  await runProgram(launcher, ['own', ...lentArguments(user.lent), `--dir=${mask}`]);
  return { generation, trees: [{ target: '/', lowers: [mask, whole] }], only: [] };
}

async function newGeneration(directory: string): Promise<{ generation: string; at: string }> {
  const generation = randomBytes(6).toString('hex');
  const at = join(directory, generation);
  await mkdir(at, { recursive: true, mode: 0o700 });
  await writeFile(join(at, 'owner'), await ownProcess());
  return { generation, at };
}

/** Removes generated layers that neither a sandbox nor a living driver uses. */
export async function removeUnusedBases(
  { directory, launcher, user }: BaseMaker,
  used: ReadonlySet<string>,
): Promise<void> {
  for (const generation of await readdir(directory)) {
    const at = join(directory, generation);
    const owner = await readFile(join(at, 'owner'), 'utf8').catch(() => '');
    if (used.has(generation) || (await isAlive(owner))) continue;
    await runProgram(launcher, ['drop', ...lentArguments(user.lent), `--dir=${at}`]);
  }
}

async function kindOf(path: string): Promise<'link' | 'directory' | 'other' | undefined> {
  try {
    const status = await lstat(path);
    if (status.isSymbolicLink()) return 'link';
    return status.isDirectory() ? 'directory' : 'other';
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw fault;
  }
}
