import { randomBytes } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { SINCE } from './ns-checkpoint';
import { runProgram } from './ns-launcher';
import type { NsState } from './ns-store';
import { lentArguments } from './ns-user';

/** What the sandbox removed of its base, read off its disk from outside; one character for each byte. */
export async function removedFrom(
  launcher: string,
  { trees = [], lent }: NsState,
  directory: string,
  signal?: AbortSignal,
): Promise<readonly string[]> {
  const since = (await readFile(join(directory, SINCE), 'utf8')).trim();
  const out = join(directory, `removed-${randomBytes(6).toString('hex')}`);
  try {
    const from = [`--dir=${directory}`, `--since-ns=${since}`, `--out=${out}`];
    await runProgram(launcher, ['removed', ...lentArguments(lent), ...from], signal);
    const words = (await readFile(out, 'latin1')).split('\0').slice(0, -1);
    const removed: string[] = [];
    for (let at = 0; at + 1 < words.length; at += 2) {
      const target = trees[Number(words[at])];
      if (target !== undefined) removed.push(`${target === '/' ? '' : target}${words[at + 1]}`);
    }
    return removed;
  } finally {
    await rm(out, { force: true });
  }
}
