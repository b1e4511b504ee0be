// npm run contract -- <driver>: the driver contract suite for one driver, closed by the counts. With
// VMUX_CONTRACT_FULL=1 the silent command is silent for a minute instead of a second. With --vm it runs in an
// emulated machine with control groups of version 2 alone: see vm.mjs.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './setup.mjs';

/** The test file of each driver. */
const drivers = {
  ns: 'apps/runner-local/test/ns-contract.test.ts',
  'ns-rootless': 'apps/runner-local/test/ns-rootless-contract.test.ts',
  docker: 'apps/runner-local/test/docker-contract.test.ts',
  cloudflare: 'apps/runner-cloudflare/test/contract.test.ts',
  modal: 'apps/runner-modal/test/contract.test.ts',
};
const known = Object.keys(drivers).filter((driver) => existsSync(join(root, drivers[driver])));
const [driver, ...given] = process.argv.slice(2);
const args = given.filter((each) => each !== '--vm');
if (!driver || !known.includes(driver)) {
  console.error(`usage: npm run contract -- <${known.join('|')}> [--vm]`);
  process.exit(2);
}
if (args.length < given.length) {
  const { testInVm } = await import('./vm.mjs');
  process.exit(await testInVm(['--verbose', drivers[driver], ...args]));
}
const test = spawnSync(
  process.execPath,
  [join(root, 'scripts/test.mjs'), '--verbose', drivers[driver], ...args],
  { cwd: root, stdio: 'inherit' },
);
process.exit(test.status ?? 1);
