import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { Newcomer } from '../support/front-door';
import { visited } from '../support/preview';

const isRoot = process.getuid?.() === 0;
const hasPython = spawnSync('python3', ['--version']).status === 0;
const hasGit = spawnSync('git', ['--version']).status === 0;

describeUnless(isRoot && hasPython && hasGit, 'needs git, python3, and root on Linux')(
  'a fresh clone, with an empty home',
  () => {
    const clone = join(temporaryDirectory('clone'), 'vmux');
    const cache = spawnSync('npm', ['config', 'get', 'cache'], { encoding: 'utf8' }).stdout.trim();
    let user: Newcomer;

    beforeAll(() => {
      execFileSync('git', ['clone', '-q', projectRoot(), clone]);
      user = new Newcomer(join(clone, 'vmux'), { npm_config_cache: cache });
    });
    afterAll(releaseAll, 90_000);

    it('serves what the first command of the README says, at its preview', async () => {
      const command = 'run -p 8000 -- python3 -m http.server 8000';
      const running = user.start({ cwd: clone }, ...command.split(' '));
      const [, url = ''] = await until(
        () => /port 8000: (http:\S+)/.exec(running.said.stderr) ?? undefined,
        { timeoutMs: 280_000, everyMs: 200 },
      );
      expect(running.said.stderr).toContain('installing npm packages by the lock file');
      expect(running.said.stderr).toMatch(/vmux set-up: build: [\d.]+ s/);
      const page = await until(async () => {
        const answer = await visited(new URL(url));
        return answer.status === 200 && answer.text;
      });
      expect(page).toContain('package.json');
      expect(existsSync(join(clone, 'node_modules/jest'))).toBe(false);
      const stamp = readFileSync(join(clone, 'node_modules/.vmux-lock'), 'utf8');
      expect(stamp).toMatch(/^[0-9a-f]{64} production$/);
      running.child.kill('SIGINT');
      expect((await running.ended).code).not.toBeNull();
    }, 300_000);
  },
);
