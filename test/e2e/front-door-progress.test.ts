import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory } from '@vmux/testing';
import { Newcomer } from '../support/front-door';
import { hasTmux, Tmux } from '../support/tmux';

const isRoot = process.getuid?.() === 0;

describeUnless(isRoot && hasTmux, 'needs tmux, and root on Linux')('progress', () => {
  let user: Newcomer;

  beforeAll(async () => {
    user = new Newcomer();
    expect(await user.vmux('up')).toMatchObject({ code: 0 });
  }, 120_000);
  afterAll(releaseAll, 90_000);

  /** A directory to send that is no other's, and of which installing takes a while. */
  const project = () => {
    const directory = temporaryDirectory('progress');
    mkdirSync(join(directory, 'near'));
    writeFileSync(join(directory, 'large'), randomBytes(8 * 1024 * 1024));
    writeFileSync(join(directory, 'near/package.json'), '{"name":"near","version":"1.0.0"}');
    const dependencies = { near: 'file:./near' };
    const scripts = { postinstall: 'sleep 3' };
    writeFileSync(
      join(directory, 'package.json'),
      JSON.stringify({ name: 'app', scripts, dependencies }),
    );
    return directory;
  };
  const run = ['run', '--rm', '--setup', 'auto', '--', 'echo', 'it', 'ran'];
  /** A clone of which the packages take a while: a stand-in for npm waits, and installs nothing. */
  const clone = () => {
    const place = temporaryDirectory('clone');
    const bin = join(place, 'bin');
    mkdirSync(bin);
    writeFileSync(join(bin, 'npm'), '#!/bin/sh\nsleep 3\nexit 1\n', { mode: 0o755 });
    symlinkSync(process.execPath, join(bin, 'node'));
    execFileSync('git', ['clone', '--quiet', projectRoot(), join(place, 'vmux')]);
    const env = { PATH: `${bin}:${process.env.PATH}`, HOME: place, VMUX_PORT: '0' };
    return { vmux: join(place, 'vmux/vmux'), cwd: place, env };
  };

  it('of sending and of installing is shown on a terminal, and wiped', async () => {
    const cwd = project();
    const terminal = new Tmux({ cols: 100, cwd, env: user.env });
    const record = join(temporaryDirectory('record'), 'bytes');
    terminal.record(record);
    terminal.line(`${user.vmuxFile} ${run.join(' ')}`);
    await terminal.until(/vmux: installing what the directory needs … \d+ s/, 60_000);
    const screen = await terminal.until(/^it ran$/m, 60_000);
    expect(screen).not.toContain('…');
    const shown = readFileSync(record, 'utf8');
    expect(shown).toMatch(/vmux: sending \d+ files, \d+ KiB/);
    expect(shown).toMatch(/vmux: sending … \d+ %/);
  }, 150_000);

  it('of packages that are installed is shown on a terminal', async () => {
    const { vmux, cwd, env } = clone();
    const terminal = new Tmux({ cols: 200, cwd, env });
    terminal.line(`${vmux} ps`);
    await terminal.until(/vmux set-up: npm packages … [12] s/, 60_000);
    const screen = await terminal.until(/npm ci .* ended with exit code 1/, 60_000);
    expect(screen).not.toContain('…');
  }, 90_000);

  it('never stands in a pipe', async () => {
    const { code, stdout, stderr } = await user.with({ cwd: project() }, ...run);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'it ran\n' });
    const { vmux, cwd, env } = clone();
    const setUp = spawnSync(vmux, ['ps'], { cwd, env, encoding: 'utf8' });
    expect(setUp).toMatchObject({ status: 1, stdout: '' });
    expect(setUp.stderr).toContain('vmux set-up: installing npm packages by the lock file');
    for (const said of [stderr, setUp.stderr])
      for (const mark of ['\r', '\u001b', '…']) expect(said).not.toContain(mark);
  }, 150_000);
});
