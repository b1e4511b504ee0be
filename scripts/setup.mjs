// Brings a fresh machine to where the project's commands can run: npm packages by the lock file, and
// the system programs that tests and the embedded stack start. Installs what it may and otherwise says
// exactly what to install. Uses nothing but Node: it runs before node_modules exists.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hasEngine, makesPrograms } from './build-native.mjs';

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** What each program is called where. */
const systemPrograms = {
  'nats-server': { apt: ['nats-server'], brew: ['nats-server'] },
  'redis-server': { apt: ['redis-server'], brew: ['redis'] },
  openssl: { apt: ['openssl'], brew: ['openssl'] },
  cc: { apt: ['gcc', 'libc6-dev'], brew: ['gcc'] },
  make: { apt: ['make'], brew: ['make'] },
  dockerd: { apt: ['docker.io', 'iptables'] },
  debootstrap: { apt: ['debootstrap'] },
  ip: { apt: ['iproute2'] },
  newuidmap: { apt: ['uidmap'] },
  'mkfs.btrfs': { apt: ['btrfs-progs'] },
  tmux: { apt: ['tmux'], brew: ['tmux'] },
  less: { apt: ['less'], brew: ['less'] },
  'chromium-headless-shell': { apt: ['chromium-headless-shell'] },
};

/** Not every distribution has a browser that is no snap. */
const rarePrograms = ['chromium-headless-shell'];
/** Without these, the tests that start a Docker engine, a terminal or a browser, or clone disks, are skipped and say so. */
const optionalPrograms = [
  'dockerd',
  'debootstrap',
  'ip',
  'newuidmap',
  'mkfs.btrfs',
  'tmux',
  'less',
  ...rarePrograms,
];
const neededPrograms = Object.keys(systemPrograms).filter(
  (name) => !optionalPrograms.includes(name),
);

/**
 * By the lock file. Running needs less than working on it: `production` leaves out what only tests and
 * checks use, and is content with more; whoever needs everything gets the rest then.
 */
export async function ensurePackages({ production = false } = {}) {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = join(root, 'node_modules', '.vmux-lock');
  const installed = existsSync(stamp) ? readFileSync(stamp, 'utf8') : '';
  const wanted = production ? `${lock} production` : lock;
  if (installed === lock || installed === wanted) return;
  say(`installing npm packages by the lock file${production ? ', those that running needs' : ''}`);
  const quiet = [
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    '--no-update-notifier',
    '--prefer-offline',
  ];
  await shown('npm packages', 'npm', ['ci', ...quiet, ...(production ? ['--omit=dev'] : [])]);
  writeFileSync(stamp, wanted);
}

/**
 * nats-server, without root and without a system service: the one on PATH, one that was unpacked before,
 * the distribution's package unpacked into the data directory, else Homebrew's, else an image of which
 * the stack makes a container.
 */
export async function ensureNats(dataDirectory) {
  const programs = join(dataDirectory, 'programs');
  const imageFile = join(programs, 'nats-image');
  const known = ['nats-server', 'nats-image'].map((name) => join(programs, name));
  if (onPath('nats-server') || known.some((path) => existsSync(path))) return;
  if (onPath('apt-get') && onPath('dpkg-deb') && (await unpackedNats(programs))) return;
  if (onPath('brew')) {
    say('installing nats-server with brew');
    run('brew', ['install', '--quiet', 'nats-server']);
    return;
  }
  const image = process.env.VMUX_NATS_IMAGE || 'nats:2.10-alpine';
  if (onPath('docker') && (await hasImage(image))) {
    say(`nats-server will run in a container of the image ${image}`);
    mkdirSync(programs, { recursive: true, mode: 0o700 });
    writeFileSync(imageFile, `${image}\n`);
    return;
  }
  fail(
    'nats-server is missing on this machine\n' +
      '  Debian, Ubuntu: sudo apt-get install nats-server\n' +
      '  macOS:          brew install nats-server\n' +
      '  elsewhere:      start a Docker engine, or put a release of nats-io/nats-server on your PATH',
  );
}

/** Pulled where it is missing; false where no engine answers. */
async function hasImage(image) {
  const asked = (...args) => spawnSync('docker', args, { encoding: 'utf8', timeout: 600_000 });
  if (asked('version').status !== 0) return false;
  if (asked('image', 'inspect', image).status === 0) return true;
  say(`pulling the image ${image}, which has nats-server`);
  const { status, stderr } = asked('pull', '--quiet', image);
  if (status !== 0) say(`it cannot be pulled: ${stderr.trim().split('\n', 1)[0]}`);
  return status === 0;
}

export async function unpackedNats(programs) {
  const scratch = mkdtempSync(join(tmpdir(), 'vmux-nats-'));
  try {
    say(`unpacking the nats-server package into ${programs}`);
    const options = { cwd: scratch, stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' };
    const got = spawnSync('apt-get', ['download', '-qq', 'nats-server'], options);
    const [file] = readdirSync(scratch).filter((name) => name.endsWith('.deb'));
    if (got.status !== 0 || !file) {
      say(`it cannot be downloaded: ${got.stderr.trim().split('\n', 1)[0]}`);
      return false;
    }
    run('dpkg-deb', ['-x', file, 'unpacked'], { cwd: scratch });
    mkdirSync(programs, { recursive: true, mode: 0o700 });
    const draft = join(programs, `nats-server.${process.pid}`);
    copyFileSync(join(scratch, 'unpacked/usr/sbin/nats-server'), draft);
    chmodSync(draft, 0o755);
    renameSync(draft, join(programs, 'nats-server'));
    return true;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

export function ensureSystem(programs = neededPrograms) {
  const missing = programs.filter((program) => !onPath(program));
  if (missing.length === 0) return;
  if (install(missing)) return;
  fail(
    `missing on this machine: ${missing.join(', ')}\n` +
      `  Debian, Ubuntu: sudo apt-get install ${packagesOf(missing, 'apt').join(' ')}\n` +
      `  macOS:          brew install ${packagesOf(missing, 'brew').join(' ')}`,
  );
}

/** What sandboxes of namespaces clone their disks with; without it checkpoints take longer, and doctor says so. */
export function ensureClones() {
  const missing = ['mkfs.btrfs'].filter((program) => !onPath(program));
  if (missing.length > 0 && process.platform === 'linux' && process.getuid() === 0)
    install(missing);
}

/** Something that makes Linux programs: this machine's compiler, else a Docker engine. */
export function ensureCompiler() {
  if (makesPrograms()) return;
  const missing = ['cc', 'make'].filter((program) => !onPath(program));
  const here = process.platform === 'linux' && process.env.VMUX_NATIVE_BUILD !== 'container';
  if (here && missing.length > 0 && install(missing)) return;
  if (hasEngine()) return;
  fail(
    'no C compiler that makes Linux programs, and no Docker engine to make them in\n' +
      `  Debian, Ubuntu: sudo apt-get install ${packagesOf(['cc', 'make'], 'apt').join(' ')}\n` +
      '  elsewhere:      start a Docker engine',
  );
}

/** Installs what more tests can run with, where that needs no question. */
export function ensureOptional() {
  if (process.platform !== 'linux') return;
  const missing = optionalPrograms.filter((program) => !onPath(program));
  const isRare = (program) => rarePrograms.includes(program);
  const usual = missing.filter((program) => !isRare(program));
  if (usual.length > 0) install(usual);
  // After the lists of packages are there.
  const offered = missing.filter((program) => isRare(program) && isOffered(program));
  if (offered.length > 0) install(offered);
}

const isOffered = (program) =>
  onPath('apt-cache') &&
  spawnSync('apt-cache', ['show', ...systemPrograms[program].apt]).status === 0;

const packagesOf = (programs, manager) =>
  programs.flatMap((name) => systemPrograms[name][manager] ?? []);

/** False where nothing may be installed, or it did not work. */
function install(missing) {
  if (onPath('apt-get') && mayInstall(missing)) {
    const packages = packagesOf(missing, 'apt');
    say(`installing ${packages.join(', ')} with apt-get`);
    const elevate = process.getuid() === 0 ? [] : ['sudo', ...(isAllowed() ? ['-n'] : [])];
    // RUNLEVEL keeps the packages' services from being started: the project starts its own, on free ports.
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
    const quietly = ['-y', '-qq', '--no-install-recommends'];
    return (
      works([...elevate, 'apt-get', 'update', '-qq'], env) &&
      works([...elevate, 'apt-get', 'install', ...quietly, ...packages], env)
    );
  }
  const packages = packagesOf(missing, 'brew');
  if (!onPath('brew') || packages.length === 0) return false;
  say(`installing ${packages.join(', ')} with brew`);
  return works(['brew', 'install', '--quiet', ...packages], process.env);
}

const works = ([program, ...args], env) =>
  spawnSync(program, args, { cwd: root, stdio: 'inherit', env }).status === 0;

export function run(program, args, options = {}) {
  const done = spawnSync(program, args, {
    cwd: root,
    stdio: ['inherit', 'inherit', 'inherit'],
    ...options,
  });
  if (done.error) fail(`${program}: ${done.error.message}`);
  if (done.status !== 0)
    fail(`${program} ${args.join(' ')} ended with ${done.signal ?? done.status}`);
}

/** As `run`, with the seconds that it takes so far where somebody watches. */
async function shown(what, program, args) {
  const began = Date.now();
  const seconds = () => Math.round((Date.now() - began) / 1000);
  const tick = () => process.stderr.write(`\rvmux set-up: ${what} … ${seconds()} s `);
  const timer = process.stderr.isTTY ? setInterval(tick, 1000) : undefined;
  const child = spawn(program, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  const how = await new Promise((done) => {
    child.once('error', (fault) => done(fault.message));
    child.once('exit', (code, signal) => done(code === 0 ? null : (signal ?? `exit code ${code}`)));
  });
  clearInterval(timer);
  if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
  if (how !== null) fail(`${program} ${args.join(' ')} ended with ${how}`);
}

const onPath = (program) =>
  [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin'].some((dir) =>
    isProgram(join(dir, program)),
  );

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const isAllowed = () => process.getuid() === 0 || spawnSync('sudo', ['-n', 'true']).status === 0;

/** Without a question where it may; somebody at a terminal is asked. */
function mayInstall(missing) {
  if (isAllowed()) return true;
  if (!process.stdin.isTTY || !process.stderr.isTTY || !onPath('sudo')) return false;
  const packages = packagesOf(missing, 'apt').join(', ');
  process.stderr.write(`vmux set-up: install ${packages} with sudo apt-get? [y/N] `);
  const answer = Buffer.alloc(100);
  const length = readSync(0, answer);
  return /^y(es)?$/i.test(answer.toString('utf8', 0, length).trim());
}

const say = (text) => console.error(`vmux set-up: ${text}`);

function fail(text) {
  console.error(`vmux set-up: ${text}`);
  process.exit(1);
}
