// The programs below native/: Linux programs, made by the C compiler of this machine, or in a container
// where this machine has none or is no Linux.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** Whether this machine makes Linux programs by itself. */
export const makesPrograms = () =>
  process.env.VMUX_NATIVE_BUILD !== 'container' &&
  process.platform === 'linux' &&
  isOnPath('make') &&
  isOnPath(process.env.CC || 'cc');

/** Whether a container could. */
export const hasEngine = () =>
  isOnPath('docker') && docker(['version'], { stdio: 'ignore' }).status === 0;

export function buildNative() {
  if (makesPrograms()) {
    for (const name of programs()) makeHere(name);
    return;
  }
  if (!hasEngine())
    throw new Error(
      'the programs of native/ need a C compiler and make on Linux, or a Docker engine to make them in',
    );
  makeInContainer();
}

const programs = () =>
  (existsSync(join(root, 'native')) ? readdirSync(join(root, 'native')) : []).filter((name) =>
    existsSync(join(root, 'native', name, 'Makefile')),
  );

function makeHere(name) {
  const made = spawnSync('make', ['-s', '-C', join(root, 'native', name)], { stdio: 'inherit' });
  if (made.error) throw new Error(`make cannot be run: ${made.error.message}`);
  if (made.status !== 0)
    throw new Error(`native/${name} does not build (make exited ${made.status})`);
}

/**
 * For the processor of the engine, which is where docker sandboxes run. Files are carried by the engine's
 * own interface: it may be on another machine. Only when what they are made of has changed.
 */
function makeInContainer() {
  const image = process.env.VMUX_BUILD_IMAGE || 'gcc:13-bookworm';
  const sources = digestOf(['native'], image);
  const stamp = join(root, 'dist/native/.made-of');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === sources) return;
  console.error(`vmux set-up: making the programs of native/ in a container of ${image}`);
  const steps = programs().map((name) => `make -s -C /build/native/${name} CC="$compiler"`);
  const choice = 'compiler=$(command -v cc || command -v gcc)';
  const script = [choice, 'mkdir -p /build/dist/native', ...steps].join('\n');
  const command = ['/bin/sh', '-ec', script];
  const isolated = ['--network=none', '--workdir=/'];
  const made = docker(['create', ...isolated, image, ...command], { encoding: 'utf8' });
  if (made.status !== 0)
    throw new Error(
      `no container can be made of ${image}: ${made.stderr.trim().split('\n', 1)[0]}`,
    );
  const container = made.stdout.trim();
  mkdirSync(join(root, 'dist/native'), { recursive: true });
  const draft = mkdtempSync(join(root, 'dist/native/.draft-'));
  try {
    const tree = archiveOf('native');
    need(docker(['cp', '-', `${container}:/`], { input: tree }), 'the sources cannot be sent');
    const ran = docker(['start', '--attach', container], { stdio: 'inherit' });
    need(ran, `native/ does not build in a container of ${image}`);
    need(docker(['cp', `${container}:/build/dist/native/.`, draft]), 'nothing can be fetched');
    for (const name of readdirSync(draft)) {
      chmodSync(join(draft, name), 0o755);
      renameSync(join(draft, name), join(root, 'dist/native', name));
    }
    writeFileSync(stamp, sources);
  } finally {
    docker(['rm', '--force', container], { stdio: 'ignore' });
    rmSync(draft, { recursive: true, force: true });
  }
}

function need(done, complaint) {
  if (done.status === 0) return;
  const said = String(done.error?.message ?? done.stderr ?? '').trim();
  throw new Error(said ? `${complaint}: ${said.split('\n', 1)[0]}` : complaint);
}

const docker = (args, options = {}) =>
  spawnSync('docker', args, { timeout: 600_000, maxBuffer: 64 * 1024 * 1024, ...options });

/** A tar archive of a tree, below `build/`. */
function archiveOf(tree) {
  const parts = [entryOf('build/', 0o755)];
  for (const path of below(tree)) {
    const content = readFileSync(join(root, path));
    const room = Buffer.alloc(Math.ceil(content.length / 512) * 512);
    content.copy(room);
    parts.push(entryOf(`build/${path}`, 0o644, content.length), room);
  }
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

function entryOf(path, mode, size) {
  const header = Buffer.alloc(512);
  const octal = (value, width) => `${value.toString(8).padStart(width - 1, '0')}\0`;
  header.write(path, 0);
  header.write(octal(mode, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(size ?? 0, 12), 124);
  header.write(octal(0, 12), 136);
  header.write('        ', 148);
  header.write(size === undefined ? '5' : '0', 156);
  header.write('ustar\x0000', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}

function digestOf(trees, ...more) {
  const hash = createHash('sha256').update(JSON.stringify(more));
  for (const path of trees.flatMap(below))
    hash.update(`${path}\0`).update(readFileSync(join(root, path)));
  return hash.digest('hex');
}

const below = (tree) =>
  readdirSync(join(root, tree), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .sort();

function isOnPath(program) {
  if (program.includes('/')) return existsSync(program);
  return (process.env.PATH ?? '').split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
