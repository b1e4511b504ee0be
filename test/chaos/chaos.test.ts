import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { projectRoot, skipUnless } from '@vmux/testing';

const test = skipUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux');

/** The short form of `npm run chaos`: its own process, so that it is exactly what a person runs. */
test('the laws hold while processes, links, clocks and the disk are broken for half a minute', async () => {
  const main = join(projectRoot(), 'dist/test/chaos/main.js');
  const args = ['--seconds', '30', '--sessions', '3', '--time-sessions', '2', '--json'];
  const run = spawnSync(process.execPath, [main, ...args], { encoding: 'utf8' });
  console.log(`${run.stderr}${run.stdout}`);
  expect(run.status).toBe(0);
  const result = JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '{}');
  expect(result.violations).toBe(0);
  // A run in which nothing was done or broken would show nothing.
  expect(result.operations).toBeGreaterThan(10);
  expect(result.faults).toBeGreaterThan(0);
}, 420_000);
