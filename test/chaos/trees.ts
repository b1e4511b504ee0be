import { createHash } from 'node:crypto';
import { seededRandom } from '@vmux/testing';
import { generated } from './generator';

/**
 * Trees of files that follow from a number alone, so that what a sandbox must hold is known without having
 * looked. A version is made beside the last one and takes its place at once, by a rename: whatever stops it,
 * the tree is the one before or this one.
 */
interface TreeFile {
  readonly path: string;
  readonly bytes: Buffer;
  readonly mode: string;
  readonly key: string;
}

const DIRECTORIES = ['d0', 'd1', 'd1/e'];
const MODES = ['600', '640', '755', '444'];
const SMALL = 40_000;
const LARGE = 600_000;

function filesOf(version: number): readonly TreeFile[] {
  const random = seededRandom(version);
  return Array.from({ length: 4 + random.integer(5) }, (_, index) => {
    const seed = random.integer(2 ** 31);
    const size = random.integer(index === 1 ? LARGE : SMALL);
    const directory = index === 0 ? '' : random.pick(['', ...DIRECTORIES.map((d) => `${d}/`)]);
    return {
      path: `${directory}f${index}`,
      bytes: size === 0 ? Buffer.alloc(0) : generated(seed, 1, size),
      mode: random.pick(MODES),
      key: seed.toString(16).padStart(32, '0'),
    };
  });
}

/** A shell line that makes this version the tree. */
export function treeLine(version: number): string {
  const own = `t${version}`;
  const files = filesOf(version).map(({ path, bytes, mode, key }) => {
    const make = `head -c ${bytes.length} /dev/zero | openssl enc -aes-128-ctr -K ${key} -iv ${'0'.repeat(32)} > ${path}`;
    return `${bytes.length === 0 ? `: > ${path}` : make}; chmod ${mode} ${path}`;
  });
  return [
    `set -e; umask 022; cd /workspace; rm -rf ${own}; mkdir ${own}; cd ${own}`,
    `mkdir ${DIRECTORIES.join(' ')}`,
    ...files,
    'ln f0 hard; ln -s f1 soft; cd ..',
    `ln -sfn ${own} next-${own}; mv -T next-${own} tree`,
    `find . -maxdepth 1 -name 't[0-9]*' ! -name ${own} -exec rm -rf {} +`,
  ].join('; ');
}

/** A shell line that says what the tree is: everything that makes it what it is, in one digest. */
export const LOOK =
  'cd /workspace; [ -e tree ] || { echo none; exit 0; }; cd tree/; ' +
  "{ find . -type d -printf 'd %p %m\\n'; find . -type l -printf 'l %p %l\\n'; " +
  "find . -type f -printf 'f %p %m %s %n\\n'; find . -type f -exec sha256sum {} +; } " +
  "| LC_ALL=C sort | sha256sum | cut -d' ' -f1";

export const NO_TREE = 'none';

const known = new Map<number, string>();

/** What looking at this version says. */
export function lookOf(version: number): string {
  const before = known.get(version);
  if (before) return before;
  const files = filesOf(version).map((file) => ({
    ...file,
    links: file.path === 'f0' ? 2 : 1,
  }));
  const [first] = files;
  const all = first ? [...files, { ...first, path: 'hard' }] : files;
  const lines = [
    'd . 755',
    ...DIRECTORIES.map((path) => `d ./${path} 755`),
    'l ./soft f1',
    ...all.map(({ path, mode, bytes, links }) => `f ./${path} ${mode} ${bytes.length} ${links}`),
    ...all.map(
      ({ path, bytes }) => `${createHash('sha256').update(bytes).digest('hex')}  ./${path}`,
    ),
  ];
  const text = lines
    .map((line) => Buffer.from(`${line}\n`))
    .sort(Buffer.compare)
    .join('');
  const digest = createHash('sha256').update(text).digest('hex');
  known.set(version, digest);
  return digest;
}
