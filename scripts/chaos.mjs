// npm run chaos -- [--minutes 3] [--seconds n] [--seed n] [--json]: breaks the stack and checks the laws.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureOptional, ensurePackages, ensureSystem, root } from './setup.mjs';

await ensurePackages();
ensureSystem();
ensureOptional();
const { build } = await import('./build.mjs');
await build();
const main = join(root, 'dist/test/chaos/main.js');
process.exit(
  spawnSync(process.execPath, [main, ...process.argv.slice(2)], { stdio: 'inherit' }).status ?? 1,
);
