import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { access, chmod, copyFile, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { runProgram } from './ns-launcher';

/** An empty filesystem of that size, made once; each sandbox gets a copy of its few hundred kilobytes. */
export async function diskTemplate(directory: string, sizeMiB: number): Promise<string> {
  const path = join(directory, `ext4-${sizeMiB}.img`);
  if (existsSync(path)) return path;
  const draft = `${path}.${randomBytes(4).toString('hex')}`;
  // Without a journal: a sandbox does not outlive a crash of its host, so nothing would replay it.
  const features = ['-O', '^has_journal,^resize_inode', '-E', 'lazy_itable_init=1,nodiscard'];
  const size = ['-m', '0', '-b', '4096', draft, `${sizeMiB}M`];
  await runProgram('mke2fs', ['-q', '-F', '-t', 'ext4', ...features, ...size]);
  await rename(draft, path);
  return path;
}

/**
 * A copy of the supervisor that a sandbox may execute and not read: the kernel then keeps its memory and its
 * descriptors out of reach of everything inside, whatever capabilities that has.
 */
export async function unreadableCopy(directory: string, program: string): Promise<string> {
  const digest = createHash('sha256')
    .update(await readFile(program))
    .digest('hex');
  const path = join(directory, digest.slice(0, 32));
  if (await exists(path)) return path;
  const draft = `${path}.${randomBytes(4).toString('hex')}`;
  await copyFile(program, draft);
  await chmod(draft, 0o711);
  await rename(draft, path);
  return path;
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    (fault: NodeJS.ErrnoException) => {
      if (fault.code === 'ENOENT') return false;
      throw fault;
    },
  );
