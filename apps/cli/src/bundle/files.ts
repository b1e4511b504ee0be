import { spawnSync } from 'node:child_process';
import { lstatSync, readdirSync, readlinkSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { Failure } from '../failure';
import { IgnoreRules } from './ignore';

export interface BundledFile {
  /** Relative, with slashes; a directory's ends with one. */
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link';
  readonly mode: number;
  readonly bytes: number;
  readonly modifiedAt: number;
  /** Where a link leads. */
  readonly target: string;
}

export interface Listing {
  readonly files: readonly BundledFile[];
  /** What was left out because of its name, at most a few of them. */
  readonly leftOut: readonly string[];
}

const maxEntries = 50_000;
const maxNamed = 5;

/** Never taken: what belongs to this machine, what can be made again, and what is secret. */
const isLeftOut = (name: string): boolean =>
  ['.git', 'node_modules', '.venv', 'venv', '__pycache__'].includes(name) ||
  name === '.env' ||
  name.startsWith('.env.');

/**
 * What a bundle of the directory holds: in a git work tree what git does not ignore, else what .gitignore
 * files do not name; never what .vmuxignore names.
 */
export function filesOf(directory: string): Listing {
  const leftOut = new Set<string>();
  const files: BundledFile[] = [];
  const ignored = IgnoreRules.in(directory, '.vmuxignore');
  for (const path of listedByGit(directory) ?? walked(directory, '', [], leftOut)) {
    const secret = path.split('/').findIndex(isLeftOut);
    if (secret >= 0) {
      leftOut.add(
        path
          .split('/')
          .slice(0, secret + 1)
          .join('/'),
      );
      continue;
    }
    if (ignored.leaveOut(path)) continue;
    const file = described(directory, path);
    if (file) files.push(file);
    if (files.length > maxEntries)
      throw new Failure(
        `this directory has more than ${maxEntries} files`,
        'leave some out with .vmuxignore, run vmux in a smaller one, or with --no-bundle',
      );
  }
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  return { files, leftOut: [...leftOut].slice(0, maxNamed) };
}

/** Null outside of a git work tree, or without git. */
function listedByGit(directory: string): readonly string[] | null {
  const files = askedGit(directory, ['--cached', '--others']);
  if (!files) return null;
  // Git knows files alone: directories that are empty are found by what is not tracked.
  const untracked = askedGit(directory, ['--others', '--directory']) ?? [];
  const empty = untracked
    .filter((path) => path.endsWith('/'))
    .flatMap((path) => [...emptyIn(directory, path)]);
  return [...new Set([...files, ...empty])];
}

function askedGit(directory: string, what: readonly string[]): readonly string[] | null {
  const args = ['-C', directory, 'ls-files', '-z', '--exclude-standard', ...what];
  const git = spawnSync('git', args, { maxBuffer: 64 * 1024 * 1024 });
  return git.status === 0 ? git.stdout.toString('utf8').split('\0').filter(Boolean) : null;
}

function* emptyIn(root: string, path: string): Generator<string> {
  const entries = readdirSync(join(root, path), { withFileTypes: true });
  if (entries.length === 0) yield path;
  for (const entry of entries)
    if (entry.isDirectory() && !isLeftOut(entry.name))
      yield* emptyIn(root, `${path}${entry.name}/`);
}

interface Rules {
  /** Of the directory that has them. */
  readonly below: string;
  readonly rules: IgnoreRules;
}

function* walked(
  root: string,
  below: string,
  above: readonly Rules[],
  leftOut: Set<string>,
): Generator<string> {
  const all = [...above, { below, rules: IgnoreRules.in(join(root, below), '.gitignore') }];
  for (const entry of readdirSync(join(root, below), { withFileTypes: true })) {
    const path = `${below}${entry.name}${entry.isDirectory() ? '/' : ''}`;
    if (isLeftOut(entry.name)) leftOut.add(`${below}${entry.name}`);
    else if (all.some(({ below: from, rules }) => rules.leaveOut(path.slice(from.length))))
      continue;
    else {
      yield path;
      if (entry.isDirectory()) yield* walked(root, path, all, leftOut);
    }
  }
}

/** Null for what is gone by now, and for what cannot be bundled: sockets, devices, submodules. */
export function described(root: string, path: string): BundledFile | null {
  const full = join(root, path);
  const stats = lstatSync(full, { throwIfNoEntry: false });
  const kind = stats ? kindOf(stats, path) : null;
  if (!stats || !kind) return null;
  return {
    ...{ path, kind, mode: stats.mode & 0o777, modifiedAt: Math.floor(stats.mtimeMs / 1000) },
    bytes: kind === 'file' ? stats.size : 0,
    target: kind === 'link' ? readlinkSync(full) : '',
  };
}

function kindOf(stats: Stats, path: string): BundledFile['kind'] | null {
  if (stats.isSymbolicLink()) return 'link';
  if (stats.isFile()) return 'file';
  return stats.isDirectory() && path.endsWith('/') ? 'directory' : null;
}
