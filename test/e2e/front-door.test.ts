import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  describeUnless,
  projectRoot,
  releaseAll,
  releaseLater,
  temporaryDirectory,
  until,
} from '@vmux/testing';

const isRoot = process.getuid?.() === 0;

/** The README's first command, as it stands there, for a user who has nothing yet. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('./vmux', () => {
  const home = temporaryDirectory('home');
  const data = join(home, '.local/share/vmux');
  const project = join(home, 'project');
  mkdirSync(join(project, 'sub'), { recursive: true });
  writeFileSync(join(project, 'sub/hello.txt'), 'hello\n');
  writeFileSync(join(project, '.env'), 'SECRET=1\n');
  const vmux = (...args: string[]) =>
    new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve, reject) => {
      const child = spawn(join(projectRoot(), 'vmux'), args, {
        cwd: project,
        // Set up by whoever runs the tests: packages are not replaced under other tests.
        env: { PATH: process.env.PATH, HOME: home, VMUX_PORT: '0', VMUX_NO_SETUP: '1' },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      const said = { stdout: '', stderr: '' };
      child.stdout.on('data', (piece) => {
        said.stdout += piece;
      });
      child.stderr.on('data', (piece) => {
        said.stderr += piece;
      });
      child.once('error', reject);
      child.once('close', (code) => resolve({ code, ...said }));
    });
  const record = () =>
    JSON.parse(readFileSync(join(data, 'stack.json'), 'utf8')) as {
      pid: number;
      parts: { pid: number }[];
    };

  // Also when a test fails: nothing that this file started stays.
  releaseLater(async () => {
    const { stdout } = await vmux('ps', '--json');
    const live = stdout ? (JSON.parse(stdout) as { id: string }[]) : [];
    if (live.length > 0) await vmux('stop', '--grace', '0ms', ...live.map(({ id }) => id));
    await vmux('down');
  });
  afterAll(releaseAll, 90_000);

  it('runs a command on a machine that has nothing yet, and leaves nothing behind', async () => {
    const first = await vmux('run', '--', 'cat sub/hello.txt; ls -A; exit 5');
    expect(first).toMatchObject({ code: 5, stdout: 'hello\nsub\n' });
    expect(first.stderr).toContain('starting the stack');
    const second = await vmux('run', '--rm', '--', 'echo', 'hello  again');
    expect(second).toEqual({ code: 0, stdout: 'hello  again\n', stderr: '' });

    const { pid, parts } = record();
    const up = await vmux('up');
    expect(up).toMatchObject({ code: 0, stdout: expect.stringContaining(`process ${pid}`) });
    expect(await vmux('stop', '@last')).toMatchObject({ code: 1 });
    const [{ id }] = JSON.parse((await vmux('ps', '--json')).stdout);
    expect(await vmux('stop', id)).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect((await vmux('logs', id)).stdout).toBe('hello\nsub\n');
    await until(() => readdirSync(join(data, 'runner/ns/s')).length === 0, { timeoutMs: 20_000 });
    expect(await vmux('down')).toMatchObject({ code: 0 });
    for (const each of [pid, ...parts.map((part) => part.pid)]) expect(livesOn(each)).toBe(false);
    expect(await vmux('status')).toMatchObject({ code: 1 });
    expect(await vmux('down')).toMatchObject({ code: 0, stdout: 'no stack runs here\n' });
  }, 180_000);

  it('ends what a killed stack left running, and has its sessions again', async () => {
    const { stdout } = await vmux('run', '-d', '--', 'sleep 2; echo done; exit 4');
    const id = stdout.trim();
    const before = record();
    process.kill(before.pid, 'SIGKILL');
    await until(() => !livesOn(before.pid));
    expect(await vmux('ps')).toMatchObject({ code: 1 });
    expect(await vmux('up')).toMatchObject({ code: 0 });
    const survivors = before.parts.filter(({ pid }) => livesOn(pid));
    expect(survivors.map((part) => ({ ...part, is: statusOf(part.pid) }))).toEqual([]);
    expect(await vmux('wait', id)).toMatchObject({ code: 4 });
    expect((await vmux('logs', id)).stdout).toBe('done\n');
  }, 180_000);
});

const statusOf = (pid: number): string =>
  existsSync(`/proc/${pid}`) ? readFileSync(`/proc/${pid}/status`, 'utf8').slice(0, 200) : 'gone';

/** One that has ended does not live, whether somebody has waited for it or not. */
const livesOn = (pid: number): boolean =>
  existsSync(`/proc/${pid}`) && !/^State:\s+[ZX]/m.test(statusOf(pid));
