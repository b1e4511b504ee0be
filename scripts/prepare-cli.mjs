// What ./vmux needs before it can run: npm packages, the programs that the stack starts, and the build.
// Says what it installs and how long each step took.
import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePackages, ensureSystem, root } from './setup.mjs';

const step = async (name, work) => {
  const began = Date.now();
  await work();
  const took = Date.now() - began;
  if (took > 500) console.error(`vmux set-up: ${name}: ${(took / 1000).toFixed(1)} s`);
};

const began = new Date();
await step('npm packages', ensurePackages);
await step('system programs', () =>
  // A server elsewhere needs no NATS here.
  ensureSystem(['openssl', 'cc', 'make', ...(process.env.VMUX_URL ? [] : ['nats-server'])]),
);
await step('build', async () => (await import('./build.mjs')).build());
// Dated to the beginning: what changed while it was built is built again.
mkdirSync(join(root, 'dist'), { recursive: true });
writeFileSync(join(root, 'dist/.built'), '');
utimesSync(join(root, 'dist/.built'), began, began);
utimesSync(join(root, 'node_modules/.vmux-lock'), began, began);
