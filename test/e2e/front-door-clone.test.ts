import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { Newcomer } from '../support/front-door';

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
        { timeoutMs: 170_000, everyMs: 200 },
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
    }, 180_000);
  },
);

/** As a browser: with the cookie that the first answer gives. `*.localhost` is not resolved everywhere. */
async function visited(url: URL): Promise<{ status: number; text: string }> {
  const first = await asked(url, {});
  const cookie = first.cookie?.split(';', 1)[0] ?? '';
  if (first.status !== 303) return first;
  return asked(new URL(first.location ?? '', url), { cookie });
}

function asked(url: URL, headers: Record<string, string>) {
  return new Promise<{ status: number; text: string; cookie?: string; location?: string }>(
    (resolve, reject) => {
      const place = { host: '127.0.0.1', port: url.port, path: `${url.pathname}${url.search}` };
      request({ ...place, headers: { ...headers, host: url.host } }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
        });
        answer.on('end', () =>
          resolve({
            ...{ status: answer.statusCode ?? 0, text },
            ...{ cookie: answer.headers['set-cookie']?.[0], location: answer.headers.location },
          }),
        );
      })
        .on('error', reject)
        .end();
    },
  );
}
