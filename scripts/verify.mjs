// npm run verify: everything that must hold before a change lands. `--tested` leaves the tests out, for
// a caller that has just run them (.ci/run).
import { ensurePackages, run } from './setup.mjs';

await ensurePackages();
const step = (name, program, ...args) => {
  console.log(`── ${name}`);
  run(program, args);
};
const bin = (name) => `node_modules/.bin/${name}`;

step('format and lint', bin('biome'), 'ci', '--error-on-warnings', '.');
step('types', process.execPath, 'node_modules/@typescript/native/bin/tsc', '-p', 'tsconfig.json');
step('arrows', bin('depcruise'), '--config', '.dependency-cruiser.cjs', 'apps', 'libs');
if (!process.argv.includes('--tested')) step('tests', process.execPath, 'scripts/test.mjs');
