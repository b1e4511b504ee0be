import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { releaseAll, skipUnless, temporaryDirectory } from '@vmux/testing';
import { type Bundle, bundleOf } from '../src/bundle/bundle';

afterAll(releaseAll);

const namesIn = ({ bytes }: Bundle): string[] =>
  execFileSync('tar', ['-tz'], { input: bytes }).toString().trim().split('\n').sort();

const whole = async (directory: string): Promise<Bundle> => {
  const bundle = await bundleOf(directory);
  if (!bundle) throw new Error('there is no bundle');
  return bundle;
};

describe('a bundle', () => {
  it('unpacks to the same files, links, modes and empty directories', async () => {
    const from = temporaryDirectory('bundle');
    const long = `${'deep/'.repeat(30)}file`;
    mkdirSync(join(from, 'deep/'.repeat(30)), { recursive: true });
    mkdirSync(join(from, 'empty'));
    writeFileSync(join(from, long), 'long');
    writeFileSync(join(from, 'größe 日本.txt'), 'x'.repeat(1025));
    writeFileSync(join(from, 'nothing'), '');
    writeFileSync(join(from, 'run.sh'), '#!/bin/sh\n');
    chmodSync(join(from, 'run.sh'), 0o755);
    symlinkSync('../elsewhere', join(from, 'link'));
    const bundle = await whole(from);
    const to = temporaryDirectory('unpacked');
    execFileSync('tar', ['-xz', '-C', to], { input: bundle.bytes });
    expect(readFileSync(join(to, long), 'utf8')).toBe('long');
    expect(readFileSync(join(to, 'größe 日本.txt'), 'utf8')).toBe('x'.repeat(1025));
    expect(readFileSync(join(to, 'nothing'))).toHaveLength(0);
    expect(lstatSync(join(to, 'run.sh')).mode & 0o777).toBe(0o755);
    expect(readlinkSync(join(to, 'link'))).toBe('../elsewhere');
    expect(lstatSync(join(to, 'empty')).isDirectory()).toBe(true);
    expect((await whole(from)).digest).toBe(bundle.digest);
  });

  it('leaves out secrets and what can be made again, and says so', async () => {
    const from = temporaryDirectory('bundle');
    for (const name of ['node_modules', '.venv', '.git']) mkdirSync(join(from, name));
    for (const name of ['.env', '.env.local', 'node_modules/a', '.venv/b', '.environment', 'c'])
      writeFileSync(join(from, name), name);
    const bundle = await whole(from);
    expect(namesIn(bundle)).toEqual(['.environment', 'c']);
    expect([...bundle.leftOut].sort()).toEqual([
      ...['.env', '.env.local', '.git', '.venv', 'node_modules'],
    ]);
  });

  skipUnless(spawnSync('git', ['--version']).status === 0, 'no git')(
    'holds in a git work tree what git does not ignore, committed or not',
    async () => {
      const from = temporaryDirectory('bundle');
      execFileSync('git', ['init', '-q', from]);
      writeFileSync(join(from, '.gitignore'), '*.log\n');
      for (const name of ['a.log', 'b.ts', 'gone.ts', '.env'])
        writeFileSync(join(from, name), name);
      execFileSync('git', ['-C', from, 'add', '-f', 'gone.ts', '.env']);
      execFileSync('rm', [join(from, 'gone.ts')]);
      const bundle = await whole(from);
      expect(namesIn(bundle)).toEqual(['.gitignore', 'b.ts']);
      expect(bundle.leftOut).toEqual(['.env']);
    },
  );

  it.each(['in a git work tree', 'elsewhere'])(
    'leaves out what .gitignore and .vmuxignore name, and keeps empty directories, %s',
    async (where) => {
      const from = temporaryDirectory('bundle');
      if (where !== 'elsewhere') execFileSync('git', ['init', '-q', from]);
      for (const name of ['data/raw', 'data/empty', 'logs', 'src/deep'])
        mkdirSync(join(from, name), { recursive: true });
      writeFileSync(join(from, '.gitignore'), '*.log\n!keep.log\n/logs/\n');
      writeFileSync(join(from, 'src/.gitignore'), 'local\n');
      writeFileSync(join(from, '.vmuxignore'), '# big\ndata/raw/\n**/*.bin\nsrc/*.md\n');
      for (const name of [
        ...['a.log', 'keep.log', 'logs/x', 'data/raw/big', 'data/a.bin', 'data/a.txt'],
        ...['src/local', 'src/deep/local', 'src/deep/b.bin', 'src/r.md', 'src/deep/r.md'],
      ])
        writeFileSync(join(from, name), name);
      const kept = namesIn(await whole(from)).filter((name) => !name.endsWith('/'));
      expect(kept).toEqual([
        ...['.gitignore', '.vmuxignore', 'data/a.txt', 'keep.log', 'src/.gitignore'],
        'src/deep/r.md',
      ]);
      expect(namesIn(await whole(from))).toContain('data/empty/');
    },
  );

  it('is refused with the names of the largest files when it is too large', async () => {
    const from = temporaryDirectory('bundle');
    writeFileSync(join(from, 'small'), 'x');
    writeFileSync(join(from, 'weights.bin'), '');
    truncateSync(join(from, 'weights.bin'), 3 * 1024 ** 3);
    await expect(bundleOf(from)).rejects.toThrow('weights.bin (3072 MiB), small');
  });

  it('is none of an empty directory or of everything', async () => {
    expect(await bundleOf(temporaryDirectory('empty'))).toBeNull();
    expect(await bundleOf('/')).toBeNull();
  });
});
