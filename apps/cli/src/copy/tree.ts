import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type BundledFile, described } from '../bundle/files';
import { Failure } from '../failure';

const maxEntries = 1_000_000;

/** Everything below a directory, nothing left out; sockets and devices are not files. */
export function everythingIn(directory: string): readonly BundledFile[] {
  const found: BundledFile[] = [];
  const visit = (below: string): void => {
    for (const { name } of readdirSync(join(directory, below), { withFileTypes: true })) {
      const path = `${below}${name}`;
      const isDirectory = lstatSync(join(directory, path)).isDirectory();
      const file = described(directory, isDirectory ? `${path}/` : path);
      if (file) found.push(file);
      if (found.length > maxEntries)
        throw new Failure(`there are more than ${maxEntries} files in it`, 'copy a smaller one');
      if (isDirectory) visit(`${path}/`);
    }
  };
  visit('');
  return found;
}
