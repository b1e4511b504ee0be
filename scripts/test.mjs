// npm test [-- <jest arguments>]: installs what is missing, builds, runs every test and ends with the counts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureOptional, ensurePackages, ensureSystem, root } from './setup.mjs';

await ensurePackages();
ensureSystem();
ensureOptional();
const scratch = mkdtempSync(join(tmpdir(), 'vmux-test-'));
const first = jest(process.argv.slice(2));
const counts = process.env.CI && first?.failed > 0 ? again(first) : first;
rmSync(scratch, { recursive: true });
if (!counts) console.error('the test run ended before it could count its tests');
else console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts && counts.failed === 0 && counts.passed > 0 ? 0 : 1);

/** The counts of one run, or nothing when it did not come to its end. */
function jest(args) {
  const countsFile = join(scratch, 'counts.json');
  rmSync(countsFile, { force: true });
  spawnSync(process.execPath, [join(root, 'node_modules/jest/bin/jest.js'), ...args], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, VMUX_TEST_COUNTS: countsFile },
  });
  return existsSync(countsFile) ? JSON.parse(readFileSync(countsFile, 'utf8')) : undefined;
}

/**
 * Where nobody watches, files that failed beside others on a busy machine are run once more, alone. What
 * passes only then is named: it is a test to mend, not a success to forget.
 */
function again({ passed, failed, skipped, failedFiles }) {
  console.log(`running again, alone: ${failedFiles.join(', ')}`);
  const second = jest(['--runInBand', '--runTestsByPath', ...failedFiles]);
  if (!second) return undefined;
  for (const file of failedFiles.filter((each) => !second.failedFiles.includes(each))) {
    console.log(`passed only when run again, alone: ${file}`);
  }
  return { passed: passed + failed - second.failed, failed: second.failed, skipped };
}
