import { spawnSync } from 'node:child_process';
import { lstatSync, readdirSync, readlinkSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { Failure } from '../failure';

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

/** What a bundle of the directory holds: in a git work tree what git does not ignore, else everything. */
export function filesOf(directory: string): Listing {
  const leftOut = new Set<string>();
  const files: BundledFile[] = [];
  for (const path of listedByGit(directory) ?? walked(directory, '', leftOut)) {
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
    const file = described(directory, path);
    if (file) files.push(file);
    if (files.length > maxEntries)
      throw new Failure(
        `this directory has more than ${maxEntries} files`,
        'run vmux in a smaller one, or with --no-bundle',
      );
  }
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  return { files, leftOut: [...leftOut].slice(0, maxNamed) };
}

/** Null outside of a git work tree, or without git. */
function listedByGit(directory: string): readonly string[] | null {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const git = spawnSync('git', ['-C', directory, ...args], { maxBuffer: 64 * 1024 * 1024 });
  if (git.status !== 0) return null;
  return [...new Set(git.stdout.toString('utf8').split('\0').filter(Boolean))];
}

function* walked(root: string, below: string, leftOut: Set<string>): Generator<string> {
  for (const entry of readdirSync(join(root, below), { withFileTypes: true })) {
    const path = `${below}${entry.name}`;
    if (isLeftOut(entry.name)) leftOut.add(path);
    else if (entry.isDirectory()) {
      yield `${path}/`;
      yield* walked(root, `${path}/`, leftOut);
    } else yield path;
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
