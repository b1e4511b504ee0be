import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '@vmux/testing';

export interface FetchedTool {
  /** With `bin/<name>`; may be copied. */
  readonly directory: string;
  readonly whyNot: string | null;
}

const WITHIN_MS = 120_000;

/** A program out of an npm package, fetched once per checkout, by one process at a time. */
export function fetchedTool(name: string, packaged: string, program: string): FetchedTool {
  const cache = join(projectRoot(), 'dist/cache');
  const directory = join(cache, `tool-${packaged.replace(/[^a-z0-9.-]/gi, '-')}`);
  mkdirSync(cache, { recursive: true });
  if (!existsSync(directory)) {
    const made = spawnSync(
      'flock',
      [join(cache, 'tools.lock'), '/bin/sh', '-ec', MAKE, directory, packaged, program, name],
      { encoding: 'utf8', timeout: WITHIN_MS },
    );
    if (made.status !== 0 || !existsSync(directory))
      return { directory, whyNot: `${name} cannot be fetched as an npm package` };
  }
  const found = spawnSync(join(directory, 'bin', name), ['--version'], { timeout: WITHIN_MS });
  const whyNot = found.status === 0 ? null : `${name} does not run here`;
  return { directory, whyNot };
}

const MAKE = `[ ! -e "$0" ] || exit 0
rm -rf "$0.new"; mkdir -p "$0.new/bin"
npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$0.new" "$1"
ln -s "../node_modules/$2" "$0.new/bin/$3"
chmod +x "$0.new/node_modules/$2"
rm -rf "$0.new/node_modules/.bin"
mv "$0.new" "$0"`;

/** Why a system program that a sandbox over the host's programs would have is not there. */
export const whyNoProgram = (...names: readonly string[]): string | null => {
  const missing = names.filter((name) => !existsSync(join('/usr/bin', name)));
  return missing.length === 0 ? null : `${missing.join(', ')} not installed in /usr/bin`;
};
