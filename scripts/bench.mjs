// npm run bench [-- <name>] [--json]: runs bench/<name>.bench.ts; without a name the comparison with what
// one would use instead, which writes bench/RESULTS.md; `time` writes bench/TIME.md.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensureOptional, ensurePackages, ensureSystem, root } from './setup.mjs';

await ensurePackages();
const given = process.argv.slice(2);
const [name, ...args] = given[0]?.startsWith('-') === false ? given : ['exec', ...given];
const known = readdirSync(join(root, 'bench')).flatMap(
  (file) => /^(.+)\.bench\.ts$/.exec(file)?.[1] ?? [],
);
if (!known.includes(name)) {
  console.error(`usage: npm run bench [-- ${known.join('|')}] [--json]`);
  process.exit(2);
}
ensureSystem();
ensureOptional();
const { build } = await import('./build.mjs');
await build();
const file = join(root, 'dist/bench', `${name}.bench.js`);
if (!existsSync(file)) throw new Error(`${file} was not built`);
process.exit(spawnSync(process.execPath, [file, ...args], { stdio: 'inherit' }).status ?? 1);
