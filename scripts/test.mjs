// npm test [-- <jest arguments>]: installs what is missing, builds, runs every test and ends with the counts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureOptional, ensurePackages, ensureSystem, root } from './setup.mjs';

ensurePackages();
ensureSystem();
ensureOptional();
const scratch = mkdtempSync(join(tmpdir(), 'vmux-test-'));
const countsFile = join(scratch, 'counts.json');
const jest = spawnSync(
  process.execPath,
  [join(root, 'node_modules/jest/bin/jest.js'), ...process.argv.slice(2)],
  {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, VMUX_TEST_COUNTS: countsFile },
  },
);
const counts = existsSync(countsFile) ? JSON.parse(readFileSync(countsFile, 'utf8')) : undefined;
rmSync(scratch, { recursive: true });
if (!counts) console.error('the test run ended before it could count its tests');
else console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts && counts.failed === 0 && counts.passed > 0 ? (jest.status ?? 1) : 1);
