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
  'nats-server': { apt: 'nats-server', brew: 'nats-server' },
  'redis-server': { apt: 'redis-server', brew: 'redis' },
  openssl: { apt: 'openssl', brew: 'openssl' },
  cc: { apt: 'gcc', brew: 'gcc', also: ['libc6-dev'] },
  make: { apt: 'make', brew: 'make' },
};

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

export function ensureSystem(programs = Object.keys(systemPrograms)) {
  const missing = programs.filter((program) => !onPath(program));
  if (missing.length === 0) return;
  const packages = (manager) =>
    missing.flatMap((p) => [systemPrograms[p][manager], ...(systemPrograms[p].also ?? [])]);
  if (onPath('apt-get') && mayInstall()) {
    say(`installing ${packages('apt').join(', ')} with apt-get`);
    const elevate = process.getuid() === 0 ? [] : ['sudo', '-n'];
    // No service is started or enabled: the project starts its own servers on free ports.
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
        ...packages('apt'),
      ]),
      { env },
    );
    return;
  }
  if (onPath('brew')) {
    say(`installing ${packages('brew').join(', ')} with brew`);
    run('brew', ['install', '--quiet', ...packages('brew')]);
    return;
  }
  fail(
    `missing on this machine: ${missing.join(', ')}\n` +
      `  Debian, Ubuntu: sudo apt-get install ${packages('apt').join(' ')}\n` +
      `  macOS:          brew install ${packages('brew').join(' ')}`,
  );
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
