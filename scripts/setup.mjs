// Brings a fresh machine to where the project's commands can run: npm packages by the lock file, and
// the system programs that tests and the embedded stack start. Installs what it may and otherwise says
// exactly what to install. Uses nothing but Node: it runs before node_modules exists.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

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
  tmux: { apt: ['tmux'], brew: ['tmux'] },
  less: { apt: ['less'], brew: ['less'] },
};

/** Without these, the tests that start a Docker engine or a terminal are skipped and say so. */
const optionalPrograms = ['dockerd', 'debootstrap', 'ip', 'tmux', 'less'];
const neededPrograms = Object.keys(systemPrograms).filter(
  (name) => !optionalPrograms.includes(name),
);

export function ensurePackages() {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = join(root, 'node_modules', '.vmux-lock');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  say('installing npm packages by the lock file (about half a minute)');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  writeFileSync(stamp, lock);
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

/** Installs what more tests can run with, where that needs no question. */
export function ensureOptional() {
  const missing = optionalPrograms.filter((program) => !onPath(program));
  if (process.platform === 'linux' && missing.length > 0) install(missing);
}

const packagesOf = (programs, manager) =>
  programs.flatMap((name) => systemPrograms[name][manager] ?? []);

/** False where nothing may be installed. */
function install(missing) {
  if (onPath('apt-get') && mayInstall()) {
    const packages = packagesOf(missing, 'apt');
    say(`installing ${packages.join(', ')} with apt-get`);
    const elevate = process.getuid() === 0 ? [] : ['sudo', '-n'];
    // RUNLEVEL keeps the packages' services from being started: the project starts its own, on free ports.
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
    run(...command([...elevate, 'apt-get', 'update', '-qq']), { env });
    run(
      ...command([
        ...elevate,
        'apt-get',
        'install',
        '-y',
        '-qq',
        '--no-install-recommends',
        ...packages,
      ]),
      { env },
    );
    return true;
  }
  const packages = packagesOf(missing, 'brew');
  if (onPath('brew') && packages.length > 0) {
    say(`installing ${packages.join(', ')} with brew`);
    run('brew', ['install', '--quiet', ...packages]);
    return true;
  }
  return false;
}

export function run(program, args, options = {}) {
  const done = spawnSync(program, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    ...options,
  });
  if (done.error) fail(`${program}: ${done.error.message}`);
  if (done.status !== 0)
    fail(`${program} ${args.join(' ')} ended with ${done.signal ?? done.status}`);
}

const command = ([program, ...args]) => [program, args];
const onPath = (program) =>
  [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin'].some((dir) =>
    existsSync(join(dir, program)),
  );
const mayInstall = () => process.getuid() === 0 || spawnSync('sudo', ['-n', 'true']).status === 0;
const say = (text) => console.error(`vmux set-up: ${text}`);

function fail(text) {
  console.error(`vmux set-up: ${text}`);
  process.exit(1);
}
