// What ./vmux needs before it can run: the npm packages that running needs, the programs that the stack
// starts, and the build. Says what it installs and how long each step took.
import { mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import {
  ensureClones,
  ensureCompiler,
  ensureNats,
  ensurePackages,
  ensureSystem,
  root,
} from './setup.mjs';

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const step = async (name, work) => {
  const started = Date.now();
  await work();
  const took = Date.now() - started;
  if (took > 500) console.error(`vmux set-up: ${name}: ${seconds(took)}`);
};

const { env } = process;
const share = env.XDG_DATA_HOME || join(homedir(), '.local', 'share');
const data = resolve(env.VMUX_DATA_DIR || join(share, 'vmux'));

/** One at a time: two first runs at once would install over each other. */
async function alone() {
  const lock = join(root, '.vmux-set-up');
  for (let told = false; ; ) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' });
      process.on('exit', () => rmSync(lock, { force: true }));
      for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
      return;
    } catch (fault) {
      if (fault.code !== 'EEXIST') throw fault;
    }
    if (!isAlive(lock)) rmSync(lock, { force: true });
    else if (!told) console.error('vmux set-up: waiting for another one');
    told = true;
    await new Promise((done) => setTimeout(done, 200));
  }
}

function isAlive(lock) {
  try {
    process.kill(Number(readFileSync(lock, 'utf8')), 0);
    return true;
  } catch (fault) {
    return fault.code === 'EPERM';
  }
}

const began = new Date();
await alone();
await step('npm packages', () => ensurePackages({ production: true }));
await step('system programs', async () => {
  ensureSystem(['openssl']);
  ensureCompiler();
  // A server elsewhere needs no NATS and no sandboxes here.
  if (env.VMUX_URL) return;
  ensureClones();
  await ensureNats(data);
});
await step('build', async () => (await import('./build.mjs')).build());
// Dated to the beginning: what changed while it was built is built again.
mkdirSync(join(root, 'dist'), { recursive: true });
writeFileSync(join(root, 'dist/.built'), '');
utimesSync(join(root, 'dist/.built'), began, began);
utimesSync(join(root, 'node_modules/.vmux-lock'), began, began);
const took = Date.now() - began.getTime();
if (took > 500) console.error(`vmux set-up: ready after ${seconds(took)}`);
